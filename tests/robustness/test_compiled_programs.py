"""What has been compiled is kept for other processes, and none of them trusts what is there."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache


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
