"""Precision: JAX has one for a process, so whoever else computes in it is told, and single precision is refused."""

import os

from processes import printed_by

WORDS = "has switched JAX to it, for the whole process"


def environment(**variables: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "JAX_ENABLE_X64"} | variables


CALLS = """
key = jax.random.key(0)
doors = {
    "solve": lambda: dimfree.solve(flow, start, 1.0),
    "simulate": lambda: dimfree.simulate(problem, sgd, start, 50, 1.0, runs=2, key=key),
    "risk": lambda: problem.risk(start),
    "risk of a trajectory": lambda: solved.risk,
    "drift": lambda: flow.drift(0.0, start),
    "state": lambda: dimfree.State(Q=[[1.0]], M=[[0.1]]),
    "problem": lambda: dimfree.TwoLayer(2, 1, "erf"),
    "algorithm": lambda: dimfree.OnlineSGD(0.1),
    "random start": lambda: dimfree.random_state(problem, 50, key=key),
    "dmft": lambda: dimfree.solve(dimfree.dmft(problem, descent, paths=256), start, 0.2, key=key),
    "simulate, reused data": lambda: dimfree.simulate(problem, descent, start, 50, 0.2, runs=2, key=key),
    "hessian": lambda: dimfree.hessian(problem, start, d=50),
    "exit time": lambda: dimfree.exit_time(problem, sgd, 1000, key=key),
    "fixed points": lambda: dimfree.fixed_points(flow, key=key),
    "coefficients": lambda: dimfree.hermite_coefficients("erf", 4),
    "exponent": lambda: dimfree.information_exponent("erf"),
    "plateau": lambda: dimfree.quadratic.plateau(flow),
    "rescaled": lambda: dimfree.rescaled(flow, dimfree_rest),
    "check": lambda: dimfree.check(problem, sgd),
}
def refused():
    for name, door in doors.items():
        try:
            door()
        except dimfree.InvalidInput as error:
            assert "JAX computes in single precision here" in str(error), (name, error)
            assert 'jax.config.update("jax_enable_x64", True)' in str(error)
        else:
            raise AssertionError(f"{name} computed in single precision")
"""
SETTING = """
problem, sgd = dimfree.PhaseRetrieval(), dimfree.OnlineSGD(0.1)
descent = dimfree.GradientDescent(0.1, 2.0)
start, flow = dimfree.State(Q=[[1.0]], M=[[0.5]]), dimfree.ode(problem, sgd)
dimfree_rest = dimfree.State(Q=[[1.0]], M=[[1.0]])
solved = dimfree.solve(flow, start, 1.0)
"""


def test_who_uses_jax_already_is_told_once_and_single_precision_later_is_refused():
    code = f"""
import warnings
import jax, jax.numpy as jnp
assert jnp.ones(3).dtype == "float32"
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    import dimfree
    assert jnp.ones(3).dtype == "float64"
    assert jnp.ones(3, jnp.float32).dtype == "float32"
    {SETTING.strip().replace(chr(10), chr(10) + "    ")}
(word,) = [str(each.message) for each in heard if "precision" in str(each.message)]
assert {WORDS!r} in word, word
assert 'jax.config.update("jax_enable_x64", True)' in word
assert [each.filename for each in heard if "precision" in str(each.message)] == ["<string>"]  # the user's own line
{CALLS}
jax.config.update("jax_enable_x64", False)
refused()
jax.config.update("jax_enable_x64", True)
print(float(problem.risk(start)))
with jax.enable_x64(False):
    refused()
"""
    assert float(printed_by(code, env=environment())) == 1.5  # 2 - 2 M^2


def test_who_imports_jax_later_is_told_with_the_first_name():
    code = f"""
import warnings
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    import dimfree
    assert not heard
    dimfree.State(Q=[[1.0]], M=[[0.1]])
    dimfree.OnlineSGD(0.1)
assert [{WORDS!r} in str(each.message) for each in heard] == [True], [str(each.message) for each in heard]
assert heard[0].filename == "<string>"
import jax.numpy as jnp
assert jnp.ones(3).dtype == "float64"
"""
    printed_by(code, env=environment())


def test_who_has_chosen_is_told_nothing():
    by_hand = 'import jax; jax.config.update("jax_enable_x64", True); import dimfree; dimfree.OnlineSGD(0.1)'
    printed_by(f"import warnings; warnings.simplefilter('error'); {by_hand}", env=environment())
    double = "import dimfree; dimfree.OnlineSGD(0.1)"
    printed_by(f"import warnings; warnings.simplefilter('error'); {double}", env=environment(JAX_ENABLE_X64="1"))


def test_single_precision_of_the_environment_is_left_alone_and_refused():
    code = """
import warnings; warnings.simplefilter("error")
import dimfree, jax.numpy as jnp
assert jnp.ones(3).dtype == "float32"
try:
    dimfree.OnlineSGD(0.1)
except dimfree.InvalidInput as error:
    print(error)
"""
    assert "JAX computes in single precision here" in printed_by(code, env=environment(JAX_ENABLE_X64="0"))


def test_a_command_has_its_process_to_itself():
    code = """
import warnings; warnings.simplefilter("error", UserWarning)
import sys
from dimfree.cli import main
sys.argv = ["dimfree", "fixed-points", "--help"]
try:
    main()
except SystemExit:
    pass
import dimfree, jax.numpy as jnp
dimfree.OnlineSGD(0.1)
assert jnp.ones(3).dtype == "float64"
"""
    printed_by(code, env=environment())
