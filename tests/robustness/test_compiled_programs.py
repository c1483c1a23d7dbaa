"""What has been compiled is kept for other processes, and none of them trusts what is there."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from dimfree import compiled

COMPUTE = "import jax\njax.jit(lambda x: x**3 + 1)(2.0).block_until_ready()\n"


def test_a_program_that_another_process_has_written_half_is_compiled_again(tmp_path):
    """Under the warnings of this suite, where one that is not expected is an error."""
    kept = jax.config.jax_compilation_cache_dir

    def run() -> float:
        jax.clear_caches()
        compilation_cache.reset_cache()
        return float(jax.jit(lambda x: jnp.sin(x) * x + 3.0)(1.5))

    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        first = run()
        entries = list(tmp_path.glob("*-cache"))
        assert entries
        for entry in entries:
            entry.write_bytes(entry.read_bytes()[:-20])
        assert run() == pytest.approx(first, rel=1e-15)
    finally:
        jax.config.update("jax_compilation_cache_dir", kept)
        compilation_cache.reset_cache()


SOLVE = """
problem, start = dimfree.PhaseRetrieval(), dimfree.State(Q=[[1.0]], M=[[0.2]])
dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(0.05)), start, 1.0).risk.block_until_ready()
"""


def run(code: str, home, **variables: str) -> str:
    """What a process says on its error stream that has been told nothing else about compiled programs."""
    told = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "EQX_ON_ERROR")
    environment = {name: value for name, value in os.environ.items() if name not in told}
    environment |= {"XDG_CACHE_HOME": str(home), "JAX_ENABLE_X64": "1", **variables}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("imports", ["import dimfree", "import jax\nimport dimfree"])
def test_the_library_keeps_programs_where_the_switch_is_set(tmp_path, imports):
    """Imported before JAX or after it; the solver's too, which Diffrax's run-time errors would leave out."""
    run(f"{imports}\n{COMPUTE}", tmp_path / "without")
    assert not (tmp_path / "without").exists()
    run(f"{imports}\n{SOLVE}", tmp_path / "with", DIMFREE_KEEP_COMPILED="1")
    assert list((tmp_path / "with" / "dimfree" / "compiled").glob("jit_solve_adaptively-*-cache"))


def test_the_command_says_once_that_it_compiles_and_keeps_it(tmp_path):
    code = f"from dimfree import compiled\ncompiled.keep()\ncompiled.Announcement().start()\n{COMPUTE * 2}"
    assert run(code, tmp_path).count(f"Compiling, once: programs are kept in {tmp_path}") == 1
    assert "Compiling" not in run(code, tmp_path)


def test_where_programs_are_kept_is_for_the_user_to_say(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    assert compiled.settings()["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "dimfree" / "compiled")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    assert compiled.settings()["JAX_COMPILATION_CACHE_DIR"] == "elsewhere"
