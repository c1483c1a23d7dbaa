"""Some three hundred results of the library, to hold beside those that were recorded of it.

python tests/recorded.py           # records them anew, in tests/data/recorded.npz

What is recorded is what nobody wants to move by accident: drifts, covariances, exact runs with given keys, exit times,
Hessians, DMFT, the bytes of a study, equations. A change of them is a decision, and is recorded with its reason.
"""

import hashlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import yaml

import dimfree
from cases import RATES, UNEQUAL, WIDTHS, Case, generic_state, three_classes
from commands import call

FILE = Path(__file__).parent / "data" / "recorded.npz"
CASES = [
    Case(
        activation, p, k, sphere=bool((i + j) % 2), trained=bool((i + j // 2) % 2), batch_size=(1, 8)[(i + j // 3) % 2]
    )
    for i, activation in enumerate(RATES)
    for j, (p, k) in enumerate(WIDTHS)
]


def _flipped(student, teacher, noise, readout):
    return 0.5 * (student[0] * student[1] - teacher[0] * jnp.where(noise > 1, -1, 1)) ** 2


def _link(teacher):
    return teacher[0] * teacher[1]


def problems() -> dict[str, tuple[dimfree.Problem, dimfree.OnlineSGD]]:
    """Problems that are no two-layer networks with a teacher of the same kind."""
    two = dict(UNEQUAL)
    return {
        "fields": (dimfree.LocalFields(_flipped, 2, 1), dimfree.OnlineSGD(0.1, ridge=0.3)),
        "multi-index": (dimfree.MultiIndex(_link, 3, 2, "he2", noise=0.1), dimfree.OnlineSGD(0.1, batch_size=3)),
        "other teacher": (
            dimfree.TwoLayer(2, 1, "erf", teacher_activation="tanh"),
            dimfree.OnlineSGD(0.5, sphere=True),
        ),
        "binary": (dimfree.Mixture.binary(1, 4.0), dimfree.OnlineSGD(0.5, ridge=0.1, readout_rate=0.5)),
        "xor": (dimfree.Mixture.xor(2, 20.0), dimfree.OnlineSGD(0.5, batch_size=2, readout_rate=0.2)),
        "classes": (three_classes(2, **two), dimfree.OnlineSGD(0.3, ridge=0.2, readout_rate=0.3)),
        "points": (dimfree.Mixture.xor(4, np.inf), dimfree.OnlineSGD(0.5, ridge=0.1, readout_rate=0.5)),
        "tensor": (dimfree.SpikedTensor(3, 2.0), dimfree.OnlineSGD(0.02)),
        "matrix": (dimfree.SpikedTensor(2, 2.0), dimfree.OnlineSGD(0.02, sphere=True, batch_size=2)),
        "schedule": (
            dimfree.PhaseRetrieval(2, noise=0.1),
            dimfree.OnlineSGD(lambda alpha: 0.1 / (1 + alpha), ridge=0.1),
        ),
        "pieces": (
            dimfree.SingleIndex("he3", noise=0.1),
            dimfree.OnlineSGD(dimfree.PiecewiseLinear([0, 1], [0.1, 0.02])),
        ),
    }


def _parts(name: str, state) -> Iterator[tuple[str, np.ndarray]]:
    for part in ("Q", "M", "readout"):
        if getattr(state, part) is not None:
            yield f"{name}: {part}", np.asarray(getattr(state, part))


def _everything() -> dict[str, tuple[dimfree.Problem, dimfree.OnlineSGD]]:
    return {str(case): (case.problem, case.algorithm) for case in CASES} | problems()


def averages() -> Iterator[tuple[str, np.ndarray]]:
    """Drifts, risks, covariances."""
    for name, (problem, algorithm) in _everything().items():
        start = generic_state(problem)
        limit = dimfree.ode(problem, algorithm)
        yield from _parts(f"drift of {name}", limit.drift(0.3, start))
        yield f"risk of {name}", np.asarray(problem.risk(start))
        few = problem.width + problem.teacher_width <= 3
        if few and name != "points":
            yield f"covariance of {name}", np.asarray(dimfree.sde(problem, algorithm, 1.0).covariance(0.3, start))
    for name in ("erf-p3k3", "relu-p2k1"):
        case = next(case for case in CASES if str(case).startswith(name))
        limit = dimfree.gradient_flow(case.problem, case.algorithm)
        yield from _parts(f"flow of {name}", limit.drift(0.0, generic_state(case.problem)))


def simulations() -> Iterator[tuple[str, np.ndarray]]:
    """Exact runs and vectors, with given keys."""
    for name, (problem, algorithm) in _everything().items():
        start = generic_state(problem)
        for d in (3, 50):
            if d == 3 and problem.width + problem.teacher_width > 3:
                continue
            runs = dimfree.simulate(
                problem, algorithm, start, d, 160 * algorithm.batch_size / d, runs=3, key=jax.random.key(1)
            )
            yield from _parts(f"exact {name}, d = {d}", runs.final)
        if problem.width < 3:
            runs = dimfree.simulate(problem, algorithm, start, 40, 2.0, runs=2, key=jax.random.key(2), method="vectors")
            yield from _parts(f"vectors {name}", runs.final)
    for p in (1, 4):
        problem = dimfree.TwoLayer(p, 2, "erf")
        yield from _parts(f"random state, p = {p}", dimfree.random_state(problem, 30, key=jax.random.key(4)))


def solutions() -> Iterator[tuple[str, np.ndarray]]:
    """Limits, solved."""
    for name in ("fields", "multi-index", "binary", "points", "tensor", "schedule", "pieces"):
        problem, algorithm = problems()[name]
        start = generic_state(problem)
        yield from _parts(f"ODE of {name}", dimfree.solve(dimfree.ode(problem, algorithm), start, 1.0).final)
        if name in ("tensor", "schedule"):
            noisy = dimfree.linear_noise(problem, algorithm, 100)
            yield f"linear noise of {name}", np.asarray(dimfree.solve(noisy, start, 1.0).covariance)[-1]
            paths = dimfree.solve(
                dimfree.sde(problem, algorithm, 100), start, 1.0, runs=3, steps=50, key=jax.random.key(0)
            )
            yield from _parts(f"SDE of {name}", paths.final)
    wide = dimfree.TwoLayer(50, 2, "erf")
    begin = dimfree.random_state(wide, 200, key=jax.random.key(0), wide=True)
    for algorithm in (dimfree.OnlineSGD(1.0), dimfree.OnlineSGD(1.0, sphere=True, readout_rate=0.5)):
        limit = dimfree.mean_field(wide, algorithm, 200)
        found = dimfree.solve(limit, begin, 2.0).final
        yield f"mean field, sphere {algorithm.sphere}: M", np.asarray(found.M)
        yield f"mean field, sphere {algorithm.sphere}: q_perp", np.asarray(found.q_perp)


def analyses() -> Iterator[tuple[str, np.ndarray]]:
    """Exit times, landscapes, fixed points."""
    problem, sgd = dimfree.PhaseRetrieval(2, noise=0.1), dimfree.OnlineSGD(0.05, sphere=True)
    found = dimfree.exit_time(problem, sgd, d=1000, threshold=0.2, runs=16, key=jax.random.key(0))
    for row in found.rows():
        numbers = [value for value in row.values() if isinstance(value, float)]
        yield f"exit time, {next(iter(row.values()))}", np.asarray(numbers)
    for activation in ("square", "erf", "relu"):
        network = dimfree.TwoLayer(3, 2, activation)
        spectrum = dimfree.hessian(network, generic_state(network), d=100)
        yield f"Hessian, {activation}", np.asarray(spectrum.eigenvalues)
        yield f"Hessian, {activation}: multiplicities", np.asarray(spectrum.multiplicities)
    tensor = dimfree.ode(dimfree.SpikedTensor(order=2, snr=0.5), dimfree.OnlineSGD(1.0))
    at = dimfree.rescaled(tensor, dimfree.State(Q=[[1.0]], M=[[0.0]]))
    yield "rescaled drift", at.drift
    yield "rescaled diffusion", at.diffusion
    points = dimfree.fixed_points(
        dimfree.ode(dimfree.PhaseRetrieval(noise=0.1), dimfree.OnlineSGD(0.1)), key=jax.random.key(0)
    )
    for number, point in enumerate(points):
        yield from _parts(f"fixed point {number}", point.state)
    for name, problem, sgd in (
        ("square", dimfree.PhaseRetrieval(2), dimfree.OnlineSGD(0.1, sphere=True)),
        ("erf", dimfree.TwoLayer(1, 1, "erf", noise=0.1), dimfree.OnlineSGD(0.1, batch_size=2)),
        ("tensor", dimfree.SpikedTensor(3, 2.0), dimfree.OnlineSGD(0.1)),
        ("he3", dimfree.SingleIndex("he3"), dimfree.OnlineSGD(0.1, ridge=0.1)),
    ):
        digest = hashlib.sha256(dimfree.equations(problem, sgd).to_latex().encode()).digest()
        yield f"equations, {name}", np.frombuffer(digest, np.uint8)


def reused() -> Iterator[tuple[str, np.ndarray]]:
    """Reused data: finite size and DMFT."""
    problem, start = dimfree.PhaseRetrieval(noise=0.1), dimfree.State(Q=[[1.0]], M=[[0.4]])
    common = {"samples_per_dimension": 3.0, "sphere": True}
    for algorithm in (
        dimfree.GradientDescent(0.02, **common),
        dimfree.GradientDescent(0.02, samples_per_dimension=3.0, ridge=0.5),
        dimfree.MultiPassSGD(0.02, batch_fraction=0.5, **common),
        dimfree.PersistentSGD(0.02, batch_fraction=0.5, persistence=1.0, **common),
        dimfree.Langevin(0.02, temperature=lambda time: 0.1 / (1 + time), **common),
    ):
        name = f"{type(algorithm).__name__}, ridge {float(algorithm.ridge)}"
        runs = dimfree.simulate(problem, algorithm, start, 40, 1.0, runs=2, key=jax.random.key(0))
        yield from _parts(f"{name}", runs.final)
        yield f"{name}: training loss", np.asarray(runs.training_loss)[:, -1]
        flow = not isinstance(algorithm, dimfree.MultiPassSGD)
        times = np.linspace(0, 0.4, 21)
        limit = dimfree.dmft(problem, algorithm, paths=256, flow=flow, most_populations=4)
        found = dimfree.solve(limit, start, times, key=jax.random.key(0))
        yield f"DMFT of {name}: M", np.asarray(found.state.M)[:, 0, 0]
        yield f"DMFT of {name}: correlation", np.asarray(found.correlation)
        yield f"DMFT of {name}: training loss", np.asarray(found.training_loss)


def studies() -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of two studies."""
    axes = {"algorithm.learning_rate": [0.05, 0.1], "problem.noise": [0.01, 0.1, 1.0]}
    for name, compute in (
        ("solve", {"name": "solve", "alpha": 10.0, "overlap": 0.2}),
        ("simulate", {"name": "simulate", "alpha": 2.0, "d": 100}),
    ):
        study = {
            "problem": {"name": "PhaseRetrieval"},
            "algorithm": {"name": "OnlineSGD", "sphere": True},
            "axes": axes,
            "compute": compute,
            "runs": 2,
        }
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "study.yaml"
            file.write_text(yaml.safe_dump(study))
            assert call("study", "run", str(file), "--store", f"{folder}/store", "--cluster", "inline").exit_code == 0
            found = dimfree.open_study(f"{folder}/store").load()
            for variable in found.data_vars:
                values = np.asarray(found[variable])
                if values.dtype.kind in "fiu":
                    yield f"study {name}: {variable}", values


def results() -> dict[str, np.ndarray]:
    """All of them, by name."""
    found: dict[str, np.ndarray] = {}
    for part in (averages, simulations, solutions, analyses, reused, studies):
        for name, values in part():
            assert name not in found, name
            found[name] = values
        print(part.__name__, len(found), flush=True)
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    FILE.parent.mkdir(exist_ok=True)
    np.savez_compressed(FILE, **results())
