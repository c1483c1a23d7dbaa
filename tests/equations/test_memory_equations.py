"""Equations of algorithms with vectors of their own, in symbols, against the numbers of the library."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from commands import call
from dimfree import (
    Averaged,
    HeavyBall,
    InvalidInput,
    Momentum,
    OnlineSGD,
    PhaseRetrieval,
    SpikedTensor,
    TwoLayer,
    WeightDecay,
    equations,
)
from dimfree.algorithms.moves import Move, pairs_of
from dimfree.state import STUDENTS, TEACHERS

EXACT = 1e-10  # relative to the largest entry; both sides are closed forms in double precision
WIDE = {"noise": 0.3, "readout": [1.2, 0.7]}


class Lookahead(OnlineSGD):
    """A user's own: slow weights that the gradient moves at half the rate, and that pull the fast ones back."""

    back: jnp.ndarray

    def __init__(self, learning_rate, back, **others):
        super().__init__(learning_rate, **others)
        self.back = jnp.asarray(back, float)

    @property
    def own(self) -> dict[str, str | None]:
        return {"slow": STUDENTS}

    def move(self, alpha):
        plain = super().move(alpha)
        drag = {(STUDENTS, "slow"): self.back, ("slow", "slow"): -self.back / 2}
        return Move({**plain.drag, **drag}, {**plain.pull, "slow": 0.5 * plain.pull[STUDENTS] / (1 + self.back)})


def random_state(problem, algorithm, *, orthonormal=True, seed=0):
    """Overlaps that some vectors have, far from any symmetric point."""
    draws = np.random.default_rng(seed)
    families = [STUDENTS, TEACHERS, *sorted(algorithm.own)]
    sizes = {family: problem.teacher_width if family == TEACHERS else problem.width for family in families}
    d = sum(sizes.values()) + 2
    vectors = {family: 0.5 * draws.normal(size=(size, d)) for family, size in sizes.items()}
    if orthonormal:
        vectors[TEACHERS] = np.eye(problem.teacher_width, d)
    if algorithm.sphere:
        vectors[STUDENTS] /= np.linalg.norm(vectors[STUDENTS], axis=1, keepdims=True)
    readout = None if problem.readout is None else jnp.asarray(problem.readout)
    if algorithm.readout_rate is not None:
        readout = jnp.asarray(draws.uniform(0.5, 1.5, size=problem.width))
    overlaps = {(one, other): jnp.asarray(vectors[one] @ vectors[other].T)[None] for one, other in pairs_of(families)}
    return dimfree.State.of(overlaps, readout)


def arrays_of(result, state, *, orthonormal=True):
    """What generated functions take."""
    algorithm, (Q, M, P, *own) = result.algorithm, [np.asarray(blocks[0]) for blocks in state.overlaps.values()]
    return [Q, M, *([] if orthonormal else [P]), *own, *([] if algorithm.readout_rate is None else [state.readout])]


def code_of(result):
    names = {}
    exec(result.to_python(), names)
    return names


def as_state(result, arrays, state):
    """What the generated drift returns, as a State."""
    trained = result.algorithm.readout_rate is not None
    pairs = [pair for pair in state.overlaps if pair != (TEACHERS, TEACHERS)]
    overlaps = {pair: jnp.asarray(array)[None] for pair, array in zip(pairs, arrays, strict=False)}
    return dimfree.State.of(overlaps, jnp.asarray(arrays[-1]) if trained else None)


def assert_close(value, expected, tolerance=EXACT):
    value, expected = np.asarray(value, float), np.asarray(expected, float)
    assert np.max(np.abs(value - expected)) <= tolerance * max(1.0, np.max(np.abs(expected)))


CASES = {
    "momentum": (PhaseRetrieval(1, noise=0.2), Momentum(0.1, 0.4, 2.0), {}),
    "momentum on the sphere": (
        TwoLayer(2, 1, "square", **WIDE),
        Momentum(0.1, 0.4, 2.0, sphere=True, batch_size=3, ridge=0.2),
        {"sizes": "given"},
    ),
    "momentum, in matrices": (
        TwoLayer(2, 2, "square", **WIDE),
        Momentum(0.1, 0.4, 2.0, ridge=0.2, batch_size=3, readout_rate=0.7),
        {"orthonormal_teachers": False},
    ),
    "both on the sphere, in matrices": (
        TwoLayer(3, 2, "square", noise=0.1),
        Averaged(Momentum(0.1, 0.4, 2.0, sphere=True), 0.5),
        {},
    ),
    "average": (TwoLayer(2, 1, "he3", noise=0.1), Averaged(OnlineSGD(0.02), 0.5), {"orthonormal_teachers": False}),
    "decay": (TwoLayer(2, 1, "he3"), WeightDecay(OnlineSGD(0.02, ridge=0.3, readout_rate=0.1), 0.4), {}),
    "decay, in matrices": (PhaseRetrieval(2), WeightDecay(OnlineSGD(0.02, ridge=0.3, batch_size=3), 0.4), {}),
    "average of momentum with ridge and batch": (
        TwoLayer(2, 1, "square", **WIDE),
        Averaged(Momentum(0.1, 0.4, 2.0, ridge=0.3, batch_size=3), 0.5),
        {"sizes": "given", "orthonormal_teachers": False},
    ),
    "all at once, by Saad and Solla's integrals": (
        TwoLayer(2, 1, "erf", **WIDE),
        WeightDecay(Averaged(Momentum(0.1, 0.4, 2.0, ridge=0.3, batch_size=3, readout_rate=0.2), 0.5), 0.4),
        {"orthonormal_teachers": False},
    ),
    "tensor": (SpikedTensor(3, 1.3), Averaged(Momentum(0.1, 0.4, 2.0, ridge=0.3), 0.5), {}),
    "tensor of any order on the sphere": (
        SpikedTensor(4, 1.3),
        Momentum(0.1, 0.4, 2.0, sphere=True),
        {"sizes": "symbolic"},
    ),
    "heavy ball": (PhaseRetrieval(1, noise=0.2), HeavyBall(0.1, 0.6, ridge=0.1), {}),
    "average of a heavy ball": (PhaseRetrieval(1), Averaged(HeavyBall(0.1, 0.6, batch_size=2), 0.5), {}),
    "a user's own": (PhaseRetrieval(1, noise=0.2), Lookahead(0.1, 0.6, ridge=0.2), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_drift_and_corrector_are_those_of_the_library(name):
    problem, algorithm, options = CASES[name]
    orthonormal = options.get("orthonormal_teachers", True)
    limit, flow = dimfree.ode(problem, algorithm), dimfree.gradient_flow(problem, algorithm)
    result, pack = equations(problem, algorithm, **options), limit.coordinates.pack
    module = code_of(result)
    for seed in range(2):
        state = random_state(problem, limit.algorithm, orthonormal=orthonormal, seed=seed)
        arrays = arrays_of(result, state, orthonormal=orthonormal)
        drift = pack(limit.drift(0.0, state))
        assert_close(pack(as_state(result, module["drift"](*arrays), state)), drift)
        assert_close(module["risk"](*arrays), problem.risk(state))
        if not orthonormal or any(hasattr(side, "shape") for side in result.drift.values()):
            continue
        assert list(result.drift) == list(limit.coordinates.labels)
        at = {**result.values, **dict(zip(result.symbols.values(), np.asarray(pack(state)), strict=True))}
        corrector = [float(side.subs(at)) for side in result.corrector.values()]
        assert_close(corrector, drift - pack(flow.drift(0.0, state)))


COVARIANCES = {
    "momentum": (PhaseRetrieval(1, noise=0.2), Momentum(0.1, 0.4, 2.0), {"orthonormal_teachers": False}),
    "average of momentum with ridge and batch": (
        PhaseRetrieval(1, noise=0.2),
        Averaged(Momentum(0.1, 0.4, 2.0, ridge=0.3, batch_size=3), 0.5),
        {},
    ),
    "average on the sphere, trained": (
        PhaseRetrieval(1, noise=0.2),
        Averaged(Momentum(0.1, 0.4, 2.0, sphere=True, readout_rate=0.3), 0.5),
        {},
    ),
    "linear, two students": (TwoLayer(2, 1, "linear", **WIDE), Averaged(OnlineSGD(0.1), 0.5), {}),
    "decay, any width": (PhaseRetrieval(2), WeightDecay(OnlineSGD(0.1), 0.4), {"sizes": "symbolic"}),
    "tensor": (SpikedTensor(3, 1.3), Averaged(Momentum(0.1, 0.4, 2.0, batch_size=3), 0.5), {}),
    "tensor on the sphere": (SpikedTensor(4, 1.3), Momentum(0.1, 0.4, 2.0, sphere=True), {"sizes": "symbolic"}),
    "a user's own": (PhaseRetrieval(1, noise=0.2), Lookahead(0.1, 0.6, ridge=0.2, batch_size=2), {}),
}


@pytest.mark.parametrize("name", COVARIANCES)
def test_covariance_is_that_of_the_library(name):
    problem, algorithm, options = COVARIANCES[name]
    orthonormal = options.get("orthonormal_teachers", True)
    result = equations(problem, algorithm, "sde", **options)
    state = random_state(problem, algorithm, orthonormal=orthonormal)
    # Polynomials are averaged exactly by as many nodes; quadratic networks and tensors have closed forms.
    rule = dimfree.GaussHermite(8) if name.startswith("linear") else None
    expected = 700 * np.asarray(dimfree.sde(problem, algorithm, 700, rule).covariance(0.0, state))
    found = code_of(result)["covariance"](*arrays_of(result, state, orthonormal=orthonormal), d=700)
    assert_close(700 * found, expected)


def test_covariance_of_a_cubic_is_that_of_quadrature():
    problem, algorithm = TwoLayer(1, 1, "he3", noise=0.1), Averaged(OnlineSGD(0.01, sphere=True), 0.5)
    state = random_state(problem, algorithm)
    expected = dimfree.sde(problem, algorithm, 1, dimfree.GaussHermite(14)).covariance(0.0, state)
    result = equations(problem, algorithm, "sde")
    assert_close(code_of(result)["covariance"](*arrays_of(result, state), d=1), expected)


def test_numbers_are_symbols_with_values_and_schedules_without():
    algorithm = WeightDecay(Averaged(Momentum(0.1, 0.4, 2.0), lambda alpha: 1 / (1 + alpha)), 0.3)
    result = equations(PhaseRetrieval(), algorithm)
    assert result.to_dict()["values"] == {r"\eta": 0.1, r"\eta_2": 0.4, r"\phi": 2.0, r"\delta": 0.3}
    text = result.to_latex()
    assert r"\frac{d M^{\bar{w}}}{d \alpha} &= \phi_{\bar{w}} \left( M - M^{\bar{w}} \right)" in text
    assert r"\bar{w} = \text{average},\quad v = \text{momentum}" in text
    state = random_state(PhaseRetrieval(), algorithm)
    limit = dimfree.ode(PhaseRetrieval(), algorithm)
    found = code_of(result)["drift"](*arrays_of(result, state), averaged_forgetting=1 / 1.7)
    expected = limit.drift(0.7, state)
    assert_close(limit.coordinates.pack(as_state(result, found, state)), limit.coordinates.pack(expected))
    assert result.fixed_points == ()


def test_a_heavy_ball_is_written_as_what_it_becomes():
    result = equations(PhaseRetrieval(), HeavyBall(0.1, 0.6))
    assert result.drift == equations(PhaseRetrieval(), OnlineSGD(0.25)).drift
    assert list(result.values.values()) == pytest.approx([0.25])
    assert "as d grows OnlineSGD(learning_rate=0.25" in str(result)


@pytest.mark.parametrize(("notation", "clock"), [("arnaboldi2023", 2 / 0.1), ("bocchi2026", 1.0)])
@pytest.mark.parametrize("sizes", ["given", "symbolic"])
def test_in_the_clock_of_a_source(notation, clock, sizes):
    problem, algorithm = PhaseRetrieval(2, noise=0.2), Averaged(Momentum(0.1, 0.4, 2.0, ridge=0.2), 0.5)
    result, limit = equations(problem, algorithm, notation=notation, sizes=sizes), dimfree.ode(problem, algorithm)
    state = random_state(problem, algorithm)
    found = as_state(result, code_of(result)["drift"](*arrays_of(result, state)), state)
    assert_close(limit.coordinates.pack(found), clock * limit.coordinates.pack(limit.drift(0.0, state)))
    text = result.to_latex()
    for left, right in (("{", "}"), (r"\left", r"\right"), (r"\Bigl", r"\Bigr"), (r"\bigl", r"\bigr"), ("(", ")")):
        assert text.count(left) == text.count(right)


@pytest.mark.parametrize("name", ["all at once, by Saad and Solla's integrals", "both on the sphere, in matrices"])
def test_latex_has_an_equation_for_each_kind_of_overlap(name):
    problem, algorithm, options = CASES[name]
    text = equations(problem, algorithm, **options).to_latex()
    kinds = ("{w}w", "{w}", "vw", "v", r"v\bar{w}")
    for overlap in (
        *(f"Q^{{{kind}}}" for kind in kinds[2:]),
        r"M^{v}",
        r"M^{\bar{w}}",
        r"Q^{\bar{w}w}",
        r"Q^{\bar{w}}",
    ):
        base, _, above = overlap.partition("^")
        assert rf"\frac{{d {overlap}}}" in text or any(
            rf"\frac{{d {base}_{{i{j}}}^{above}}}" in text for j in ("l", "r")
        ), overlap
    for left, right in (("{", "}"), (r"\left", r"\right"), (r"\Bigl", r"\Bigr"), (r"\bigl", r"\bigr"), ("(", ")")):
        assert text.count(left) == text.count(right)


def test_a_series_in_hermite_coefficients_converges():
    problem, algorithm = TwoLayer(1, 1, "erf", noise=0.1), Averaged(Momentum(0.3, 0.4, 2.0, sphere=True), 0.5)
    limit, state = dimfree.ode(problem, algorithm), random_state(problem, algorithm)
    exact, errors = limit.coordinates.pack(limit.drift(0.0, state)), []
    for order in (1, 3, 5, 7):
        result = equations(problem, algorithm, hermite_order=order)
        found = as_state(result, code_of(result)["drift"](*arrays_of(result, state)), state)
        errors.append(float(np.max(np.abs(limit.coordinates.pack(found) - exact))))
    assert all(later < earlier / 2 for earlier, later in itertools.pairwise(errors))
    assert errors[-1] < 0.03 * errors[0]


class Clipped(OnlineSGD):
    def used_slopes(self, slopes, fields, gram):
        return jnp.clip(slopes(fields), -1.0, 1.0)


class Jumping(OnlineSGD):
    @property
    def own(self) -> dict[str, str | None]:
        return {"buffer": None}

    def move(self, alpha):
        plain = super().move(alpha)
        return Move(plain.drag, plain.pull, jump={("buffer", "buffer"): -0.5 * jnp.ones(())})


class Bounded(OnlineSGD):
    def move(self, alpha):
        return Move({}, {STUDENTS: -jnp.tanh(self.learning_rate)})


MOMENTUM = Momentum(0.1, 0.4, 2.0)
REFUSED = {
    "slopes that are changed": (lambda: equations(PhaseRetrieval(), Clipped(0.1)), "changes the slopes of the loss"),
    "so beside another": (
        lambda: equations(PhaseRetrieval(), Averaged(Clipped(0.1), 0.5)),
        "changes the slopes of the loss",
    ),
    "a step that jumps": (lambda: equations(PhaseRetrieval(), Jumping(0.1)), "is not the identity at 1/d = 0"),
    "a function without symbols": (lambda: equations(PhaseRetrieval(), Bounded(0.1)), "it uses tanh"),
    "the plateau of momentum": (
        lambda: equations(PhaseRetrieval(2), MOMENTUM, "linearised"),
        r"has vectors of its own \(momentum\)",
    ),
    "the plateau of a tensor": (
        lambda: equations(SpikedTensor(2, 1.0), MOMENTUM, "linearised"),
        r"has vectors of its own \(momentum\)",
    ),
    "the statistics of a source": (
        lambda: equations(SpikedTensor(2, 1.0), MOMENTUM, notation="benarous2022"),
        "that source has no sphere, no memory",
    ),
    "a covariance for any width": (
        lambda: equations(PhaseRetrieval(2), MOMENTUM, "sde", sizes="symbolic"),
        "Take sizes = 'given'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_given_is_refused_with_a_reason(name):
    call_, words = REFUSED[name]
    with pytest.raises(InvalidInput, match=words):
        call_()


def test_on_the_command_line():
    options = ["--algorithm", "momentum", "--momentum-rate", ".4", "--forgetting", "2", "--average", ".5"]
    found = call("equations", *options)
    assert r"d Q^{v\bar{w}} / d \alpha = " in found.output
    assert r"\phi_{\bar{w}} = 0.5" in found.output
    assert r"\eta_{2}" in call("equations", *options, "--latex").output
    compile(call("equations", *options, "--python").output, "equations", "exec")
