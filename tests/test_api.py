"""The public surface, and what it promises: lazy imports, jit, vmap, grad, one result type."""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from signatures import odd

import dimfree
from dimfree import registry
from processes import printed_by

PROBLEM, SGD = dimfree.PhaseRetrieval(2, 0.1), dimfree.OnlineSGD(0.1, sphere=True)
START = dimfree.State(Q=jnp.eye(2), M=[[0.3], [0.2]])


def test_import_brings_no_plotting_or_cluster_library():
    names = "dimfree.solve, dimfree.simulate, dimfree.check, dimfree.equations"
    code = f"import dimfree, sys; {names}; print(sorted(sys.modules))"
    modules = printed_by(code)
    for name in ("matplotlib", "dask", "zarr", "xarray", "typer", "sympy", "scipy.stats"):
        assert f"'{name}'" not in modules


def test_import_alone_is_light():
    assert printed_by("import dimfree, sys; print('jax' in sys.modules)").strip() == "False"


def test_every_public_name_has_a_home_and_a_docstring():
    assert dimfree.__all__ == list(registry.PUBLIC)
    for name in dimfree.__all__:
        assert getattr(dimfree, name).__doc__, name


def test_every_public_docstring_says_what_is_returned():
    assert [line for line in odd() if line.startswith("no Returns")] == []


def test_type_checkers_know_the_same_names():
    stub = pathlib.Path(dimfree.__file__).with_suffix(".pyi").read_text()
    imported = re.findall(r"from \.([\w.]*) import (\w+) as \2$", stub, re.MULTILINE)
    modules = re.findall(r"(\w+) as \1", stub.splitlines()[0])
    found = {name: module for module, name in imported} | dict.fromkeys(modules, "")
    assert found == {name: entry.module for name, entry in registry.PUBLIC.items()}


def test_solutions_under_vmap_are_those_one_by_one_and_know_their_risk():
    def solved(rate, noise):
        problem, algorithm = dimfree.PhaseRetrieval(2, noise), dimfree.OnlineSGD(rate, sphere=True)
        trajectory = dimfree.solve(dimfree.ode(problem, algorithm), START, np.linspace(0, 5, 3))
        return trajectory, trajectory.risk

    rates, noises = jnp.array([0.05, 0.1]), jnp.array([0.0, 0.3])
    together, risk_inside = jax.vmap(solved)(rates, noises)
    for i in range(2):
        alone, risk = solved(rates[i], noises[i])
        np.testing.assert_allclose(risk_inside[i], risk, rtol=1e-9)
        np.testing.assert_allclose(together.risk[i], risk, rtol=1e-9)
        np.testing.assert_allclose(together.final.M[i], alone.final.M, rtol=1e-9)


def test_gradient_through_solve_equals_differences():
    def risk(rate):
        return dimfree.solve(dimfree.ode(PROBLEM, dimfree.OnlineSGD(rate, sphere=True)), START, 4.0).risk[-1]

    gradient = jax.grad(risk)(0.1)
    np.testing.assert_allclose(gradient, (risk(0.1 + 1e-5) - risk(0.1 - 1e-5)) / 2e-5, rtol=1e-5)


@pytest.mark.parametrize("method", ["exact", "vectors"])
def test_simulate_under_jit_and_vmap(method):
    def final(rate):
        algorithm = dimfree.OnlineSGD(rate, sphere=True)
        runs = dimfree.simulate(PROBLEM, algorithm, START, 50, 2.0, runs=3, key=jax.random.key(0), method=method)
        return runs.final.M

    together = jax.jit(jax.vmap(final))(jnp.array([0.05, 0.1]))
    np.testing.assert_allclose(together[1], final(0.1), rtol=1e-10)


def test_numbers_do_not_recompile(caplog):
    def solve(rate, noise, d):
        problem, algorithm = dimfree.PhaseRetrieval(2, noise), dimfree.OnlineSGD(rate, sphere=True)
        dimfree.solve(dimfree.ode(problem, algorithm), START, 3.0)
        dimfree.simulate(problem, algorithm, START, d, 3.0, runs=2, key=jax.random.key(0))

    solve(0.1, 0.2, 50)
    with jax.log_compiles(True), caplog.at_level("WARNING"):
        solve(0.11, 0.25, 60)
    compiled = [record.getMessage() for record in caplog.records if "Finished XLA compilation" in record.getMessage()]
    assert not compiled, compiled


def test_event_of_the_ode_is_where_the_function_crosses_zero():
    """Spherical phase retrieval, p = 1, has the exact exit time log[u_e (v - u_0) / (u_0 (v - u_e))] / (2 (a - b))."""
    rate, noise, u0, ue = 0.05, 0.5, 0.01, 0.3
    a, b = 4 * (1 - 6 * rate), 2 * rate * noise
    v = 1 - b / a
    expected = np.log(ue * (v - u0) / (u0 * (v - ue))) / (2 * (a - b)) / rate
    problem, algorithm = dimfree.PhaseRetrieval(1, noise), dimfree.OnlineSGD(rate, sphere=True)
    start = dimfree.State(Q=[[1.0]], M=[[u0**0.5]])
    stopped = dimfree.solve(dimfree.ode(problem, algorithm), start, 60.0, stop=lambda s: s.M[0, 0] ** 2 - ue)
    np.testing.assert_allclose(stopped.stopped_at, expected, rtol=1e-7)
    assert int(stopped.outcome) == dimfree.Outcome.STOPPED
    np.testing.assert_allclose(stopped.final.M[0, 0] ** 2, ue, rtol=1e-7)
    already = dimfree.solve(dimfree.ode(problem, algorithm), start, 60.0, stop=lambda s: s.M[0, 0] ** 2 - u0 / 2)
    assert float(already.stopped_at) == 0.0
    np.testing.assert_allclose(already.final.M, start.M)


def test_simulation_stops_with_the_step_that_reaches_the_event():
    problem, algorithm = dimfree.PhaseRetrieval(1), dimfree.OnlineSGD(0.05, sphere=True)
    start = dimfree.State(Q=[[1.0]], M=[[0.2]])
    times = np.arange(0, 3001) / 100
    plain = dimfree.simulate(problem, algorithm, start, 100, times, runs=6, key=jax.random.key(0))
    stopped = dimfree.simulate(
        problem, algorithm, start, 100, times, runs=6, key=jax.random.key(0), stop=lambda s: s.M[0, 0] - 0.6
    )
    crossed = np.asarray(plain.state.M[:, :, 0, 0]) >= 0.6
    first = np.where(crossed.any(axis=1), np.asarray(plain.alpha)[crossed.argmax(axis=1)], np.nan)
    np.testing.assert_allclose(stopped.stopped_at, first)
    assert np.isfinite(first).any()


def test_log_spaced_saves_equal_dense_ones():
    problem, algorithm = dimfree.PhaseRetrieval(1), dimfree.OnlineSGD(0.05, sphere=True)
    start, steps = dimfree.State(Q=[[1.0]], M=[[0.2]]), np.array([1, 2, 5, 127, 128, 129, 256, 700])
    dense = dimfree.simulate(problem, algorithm, start, 100, np.arange(0, 701) / 100, runs=2, key=jax.random.key(0))
    sparse = dimfree.simulate(problem, algorithm, start, 100, steps / 100, runs=2, key=jax.random.key(0))
    np.testing.assert_allclose(sparse.state.M, dense.state.M[:, steps], atol=1e-14)


def test_results_are_labelled_and_say_how_they_were_made():
    theory = dimfree.solve(dimfree.linear_noise(PROBLEM, SGD, d=100), START, 2.0)
    data = theory.to_xarray()
    assert data.M.dims == ("alpha", "student", "teacher")
    assert data.covariance.sel(coordinate="M[1,0]", coordinate_="M[1,0]").values[-1] > 0
    assert data.attrs["limit"] == "linear noise"
    assert data.attrs["problem"].startswith("TwoLayer(width=2")
    runs = dimfree.simulate(PROBLEM, SGD, START, 100, 2.0, runs=8, key=jax.random.key(7)).to_xarray()
    assert runs.risk.dims == ("run", "alpha")
    assert runs.attrs["key"] == "[0 7]"
    assert runs.attrs["d"] == "100"
    assert "learning_rate=0.1" in runs.attrs["algorithm"]
    np.testing.assert_allclose(
        runs.risk.values,
        np.asarray(
            PROBLEM.risk(
                dimfree.State(runs.Q.values, runs.M.values, np.broadcast_to(runs.P.values, (*runs.Q.shape[:2], 1, 1)))
            )
        ),
        rtol=1e-12,
    )


def test_many_devices_give_the_same_runs():
    code = """
import os
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
import jax, dimfree
problem, sgd = dimfree.PhaseRetrieval(2, 0.1), dimfree.OnlineSGD(0.1, sphere=True)
start = dimfree.State(Q=jax.numpy.eye(2), M=[[0.3], [0.2]])
runs = dimfree.simulate(problem, sgd, start, 100, 2.0, runs=8, key=jax.random.key(0))
assert len(runs.state.M.sharding.device_set) == 4
print(*runs.final.M.ravel().tolist())
"""
    four = np.array(printed_by(code).split(), float)
    one = dimfree.simulate(PROBLEM, SGD, START, 100, 2.0, runs=8, key=jax.random.key(0)).final.M
    assert np.ptp(one) > 1e-3
    np.testing.assert_allclose(np.ravel(one), four, atol=1e-12)


def own_loss(student, teacher, noise, readout):
    return 0.5 * (student[0] - teacher[0]) ** 2


@pytest.mark.parametrize(
    "made",
    [
        dimfree.LocalFields(own_loss, width=1, teacher_width=1),
        dimfree.MultiIndex(jnp.sum, width=2, teacher_width=2),
        dimfree.TwoLayer(2, 1, "erf", normalisation="sum"),
        dimfree.Mixture.xor(2, 3.0),
        dimfree.Mixture([[1.0], [-1.0]], [1, 0], 2, np.inf, activation="tanh", normalisation="sqrt"),
        dimfree.MultiOutput([[1.0, 2.0]], [[0.5]], "tanh", "cross-entropy", "hard", teacher_activation="relu"),
        dimfree.SpikedTensor(3, 2.0),
        dimfree.Sobol(16, seed=3),
        dimfree.GaussHermite(5),
        dimfree.OnlineSGD(0.1, batch_size=2, sphere=True),
        dimfree.OnlineSGD(dimfree.PiecewiseLinear([0.0, 1.0], [0.1, 0.2])),
    ],
    ids=repr,
)
def test_what_is_printed_is_the_call_that_makes_it_again(made):
    names = {**vars(dimfree), "own_loss": own_loss, "sum": jnp.sum, "inf": np.inf}
    names |= {name: getattr(dimfree, name) for name in dimfree.__all__}
    assert repr(eval(repr(made), names)) == repr(made)


@pytest.mark.parametrize("normalisation", ["mean", "sqrt", "sum"])
def test_normalisation_is_the_factor_in_front(normalisation):
    factor = {"mean": 1 / 4, "sqrt": 1 / 2, "sum": 1.0}[normalisation]
    problem = dimfree.TwoLayer(4, 1, "erf", normalisation=normalisation)
    scaled = dimfree.TwoLayer(4, 1, "erf", readout=4 * factor * jnp.ones(4))
    start = dimfree.random_state(problem, 8, key=jax.random.key(0))
    start = dimfree.State(start.Q, start.M, start.P)
    np.testing.assert_allclose(problem.risk(start), scaled.risk(start), rtol=1e-12)


def test_single_index_with_its_own_link_is_a_two_layer_problem():
    same = dimfree.SingleIndex("he3")
    other = dimfree.SingleIndex("he3", activation=lambda x: x**3 - 3 * x)
    start = dimfree.State(Q=[[1.2]], M=[[0.4]])
    assert isinstance(same, dimfree.TwoLayer)
    algorithm = dimfree.OnlineSGD(0.01)
    exact = dimfree.ode(same, algorithm).drift(0.0, start)
    automatic = dimfree.ode(other, algorithm).drift(0.0, start)
    np.testing.assert_allclose(exact.Q, automatic.Q, atol=1e-10)
    np.testing.assert_allclose(exact.M, automatic.M, atol=1e-10)
