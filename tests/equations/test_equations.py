"""Equations in symbols against the numbers of the library, and against each other."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy

import dimfree
from dimfree import InvalidInput, OnlineSGD, PhaseRetrieval, SpikedTensor, TwoLayer, equations
from dimfree.symbolic.hermite_networks import HermiteNetwork
from dimfree.symbolic.notation import Alphabet
from dimfree.symbolic.polynomial_networks import GaussianFields

EXACT = 1e-12  # both sides are closed forms in double precision


def random_state(problem, algorithm, *, orthonormal=True, seed=0):
    """Overlaps that some weights have, far from any symmetric point."""
    draws = np.random.default_rng(seed)
    p, k = problem.width, problem.teacher_width
    students = 0.6 * draws.normal(size=(p, p + k + 2))
    teachers = np.eye(k, p + k + 2) if orthonormal else 0.6 * draws.normal(size=(k, p + k + 2))
    if algorithm.sphere:
        students /= np.linalg.norm(students, axis=1, keepdims=True)
    readout = None if problem.readout is None else np.asarray(problem.readout)
    if algorithm.readout_rate is not None:
        readout = draws.uniform(0.5, 1.5, size=p)
    return dimfree.State(Q=students @ students.T, M=students @ teachers.T, P=teachers @ teachers.T, readout=readout)


def code_of(result):
    """The generated module, run."""
    names = {}
    exec(result.to_python(), names)
    return names


def given(result, state, *, orthonormal=True):
    """The arrays that generated functions take."""
    arrays = [np.asarray(state.Q), np.asarray(state.M)]
    arrays += [] if orthonormal else [np.asarray(state.P)]
    return arrays + ([np.asarray(state.readout)] if result.algorithm.readout_rate is not None else [])


def flat(parts):
    return np.concatenate([np.ravel(np.asarray(part, float)) for part in parts])


def assert_close(value, expected, tolerance=EXACT):
    value, expected = np.asarray(value, float), np.asarray(expected, float)
    assert np.max(np.abs(value - expected)) <= tolerance * max(1.0, np.max(np.abs(expected)))


NETWORK = {"noise": 0.3, "readout": [1.2, 0.7], "teacher_readout": [0.8, 1.1]}
CASES = {
    "phase retrieval on the sphere": (PhaseRetrieval(1, noise=0.2), OnlineSGD(0.1, sphere=True), {}),
    "phase retrieval, wide, in matrices": (
        PhaseRetrieval(3, noise=0.2),
        OnlineSGD(0.1),
        {"orthonormal_teachers": False},
    ),
    "quadratic, everything at once, in matrices": (
        TwoLayer(2, 2, "square", **NETWORK),
        OnlineSGD(0.4, batch_size=3, ridge=0.2, readout_rate=0.7),
        {"orthonormal_teachers": False},
    ),
    "quadratic, everything at once, in indices": (
        TwoLayer(2, 2, "square", **NETWORK),
        OnlineSGD(0.4, batch_size=3, ridge=0.2, readout_rate=0.7),
        {"orthonormal_teachers": False, "sizes": "given"},
    ),
    "quadratic on the sphere, in matrices": (
        TwoLayer(3, 2, "square", noise=0.3, teacher_readout=[0.8, 1.1], normalisation="sqrt"),
        OnlineSGD(0.4, ridge=0.5, sphere=True),
        {},
    ),
    "he2 with a constant in the error": (
        TwoLayer(2, 1, "he2", noise=0.1, normalisation="sum"),
        OnlineSGD(0.2, readout_rate=0.2),
        {},
    ),
    "he3": (TwoLayer(2, 1, "he3", noise=0.1), OnlineSGD(0.02, batch_size=2, readout_rate=0.1), {}),
    "he4 on the sphere": (TwoLayer(1, 1, "he4"), OnlineSGD(0.01, sphere=True), {}),
    "linear": (TwoLayer(2, 2, "linear", noise=0.3), OnlineSGD(0.5, ridge=0.1), {"orthonormal_teachers": False}),
    "erf, one student": (TwoLayer(1, 1, "erf", noise=0.3), OnlineSGD(0.4, ridge=0.2), {"orthonormal_teachers": False}),
    "erf": (
        TwoLayer(2, 1, "erf", noise=0.3, readout=[1.2, 0.7]),
        OnlineSGD(0.4, batch_size=3, ridge=0.2, readout_rate=0.7),
        {"orthonormal_teachers": False},
    ),
    "erf on the sphere": (TwoLayer(2, 2, "erf", normalisation="sqrt"), OnlineSGD(0.4, sphere=True), {}),
    "matrices": (SpikedTensor(2, 1.3), OnlineSGD(0.6, ridge=0.2), {"orthonormal_teachers": False}),
    "tensors of any order": (SpikedTensor(4, 1.3), OnlineSGD(0.6), {"sizes": "symbolic"}),
    "tensors on the sphere": (SpikedTensor(3, 1.3), OnlineSGD(0.6, sphere=True), {}),
}


LONG = ("he4 on the sphere", "erf", "erf on the sphere")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in CASES])
def test_drift_corrector_and_risk_are_those_of_the_library(name):
    problem, algorithm, options = CASES[name]
    orthonormal = options.get("orthonormal_teachers", True)
    result = equations(problem, algorithm, **options)
    module = code_of(result)
    for seed in range(2):
        state = random_state(problem, algorithm, orthonormal=orthonormal, seed=seed)
        limit, flow = dimfree.ode(problem, algorithm), dimfree.gradient_flow(problem, algorithm)
        drift = limit.drift(0.0, state)
        arrays = given(result, state, orthonormal=orthonormal)
        expected = [drift.Q, drift.M, *([drift.readout] if algorithm.readout_rate is not None else [])]
        assert_close(flat(module["drift"](*arrays)), flat(expected))
        assert_close(module["risk"](*arrays), problem.risk(state))
        if not any(hasattr(side, "shape") for side in result.drift.values()):
            pack = limit.coordinates.pack
            assert list(result.drift) == list(limit.coordinates.labels)
            corrector = pack(drift) - pack(flow.drift(0.0, state))
            assert_close(evaluated(result, result.drift, state), pack(drift))
            assert_close(evaluated(result, result.corrector, state), corrector)


def evaluated(result, sides, state):
    """Expressions at a State."""
    arrays = {"Q": state.Q, "M": state.M, "P": state.P, "readout": state.readout}
    values = dict(result.values)
    for key, symbol in result.symbols.items():
        field, _, index = key.partition("[")
        values[symbol] = float(np.asarray(arrays[field])[tuple(int(i) for i in index.rstrip("]").split(","))])
    k = state.P.shape[-1]
    for r in range(k):
        for s in range(r, k):
            name = "P" if k == 1 else f"P_{{{r + 1}{s + 1}}}"
            values[sympy.Symbol(name, real=True)] = float(state.P[r, s])
    symbols = list(values)
    function = sympy.lambdify(symbols, list(sides.values()), "numpy")
    return np.asarray(function(*values.values()), float)


COVARIANCES = {
    "one student": (PhaseRetrieval(1, noise=0.2), OnlineSGD(0.1), {"orthonormal_teachers": False}),
    "two students on the sphere": (PhaseRetrieval(2, noise=0.2), OnlineSGD(0.1, sphere=True, batch_size=2), {}),
    "trained readout": (PhaseRetrieval(1, noise=0.2), OnlineSGD(0.1, readout_rate=0.3, ridge=0.1), {}),
    "two teachers": (TwoLayer(1, 2, "square", teacher_readout=[0.8, 1.1]), OnlineSGD(0.1), {}),
    "matrices": (SpikedTensor(2, 1.3), OnlineSGD(0.6), {"orthonormal_teachers": False}),
    "tensors of any order": (SpikedTensor(4, 1.3), OnlineSGD(0.6, sphere=True), {"sizes": "symbolic"}),
}


@pytest.mark.parametrize("name", COVARIANCES)
def test_covariance_is_that_of_the_library(name):
    problem, algorithm, options = COVARIANCES[name]
    orthonormal = options.get("orthonormal_teachers", True)
    result = equations(problem, algorithm, "sde", **options)
    state = random_state(problem, algorithm, orthonormal=orthonormal)
    expected = dimfree.sde(problem, algorithm, d=700).covariance(0.0, state)
    found = code_of(result)["covariance"](*given(result, state, orthonormal=orthonormal), d=700)
    assert_close(700 * found, 700 * np.asarray(expected))
    assert result.covariance.shape == expected.shape


ANY_WIDTH = {
    "free, trained, in a source's notation": (
        TwoLayer(3, 2, "square", noise=0.3, teacher_readout=[0.8, 1.1]),
        OnlineSGD(0.2, batch_size=2, readout_rate=0.3),
        "bocchi2026",
        1.0,
    ),
    "on the sphere": (TwoLayer(3, 2, "square"), OnlineSGD(0.2, sphere=True), "arnaboldi2023", 3 / 0.2),
}


@pytest.mark.parametrize("name", ANY_WIDTH)
def test_covariance_for_any_width_is_that_of_the_library(name):
    problem, algorithm, notation, clock = ANY_WIDTH[name]
    result = equations(problem, algorithm, "sde", sizes="symbolic", notation=notation)
    state = random_state(problem, algorithm)
    expected = clock * np.asarray(dimfree.sde(problem, algorithm, d=700).covariance(0.0, state))
    key = "N" if notation == "bocchi2026" else "d"
    found = code_of(result)["covariance"](*given(result, state), **{key: 700})
    assert_close(700 * found, 700 * expected)
    assert r"T^{(4)}" in result.to_latex()


def test_covariance_of_a_cubic_is_that_of_quadrature():
    problem, algorithm = TwoLayer(1, 1, "he3"), OnlineSGD(0.01, sphere=True)
    state = random_state(problem, algorithm)
    rule = dimfree.GaussHermite(14)  # exact up to degree 27; the square of the increment has degree 22
    expected = dimfree.sde(problem, algorithm, d=1, rule=rule).covariance(0.0, state)
    found = code_of(equations(problem, algorithm, "sde"))["covariance"](state.Q, state.M, d=1)
    assert_close(found, expected, 1e-10)


@pytest.mark.parametrize(("notation", "clock", "risk"), [("arnaboldi2023", 2 / 0.3, 1.0), ("bocchi2026", 1.0, 2.0)])
def test_a_sources_notation_has_its_clock_rate_and_risk(notation, clock, risk):
    problem, algorithm = TwoLayer(2, 2, "square", noise=0.1), OnlineSGD(0.3)
    state = random_state(problem, algorithm)
    drift = dimfree.ode(problem, algorithm).drift(0.0, state)
    for sizes in ("symbolic", "given"):
        module = code_of(equations(problem, algorithm, notation=notation, sizes=sizes))
        assert_close(flat(module["drift"](state.Q, state.M)), clock * flat([drift.Q, drift.M]))
        assert_close(module["risk"](state.Q, state.M), risk * problem.risk(state))


def test_the_statistics_of_tensors_are_a_change_of_variables():
    problem, algorithm = SpikedTensor(3, 1.3), OnlineSGD(0.6)
    state = random_state(problem, algorithm)
    m, r2 = float(state.M[0, 0]), float(state.Q[0, 0]) - float(state.M[0, 0]) ** 2
    drift = dimfree.ode(problem, algorithm).drift(0.0, state)
    expected = np.array([drift.M[0, 0], drift.Q[0, 0] - 2 * m * drift.M[0, 0]]) / 0.6
    jacobian = np.array([[0.0, 1.0], [1.0, -2 * m]])
    noise = jacobian @ np.asarray(dimfree.sde(problem, algorithm, d=50).covariance(0.0, state)) @ jacobian.T / 0.6
    for sizes in ("symbolic", "given"):
        module = code_of(equations(problem, algorithm, "sde", notation="benarous2022", sizes=sizes))
        assert_close(module["drift"](m, r2), expected)
        assert_close(module["covariance"](m, r2, n=50), noise)


@pytest.mark.parametrize("sphere", [pytest.param(True, marks=pytest.mark.slow), False])
def test_matrices_and_indices_are_the_same_polynomials(sphere):
    problem = TwoLayer(2, 2, "square", noise=0.3, readout=[1.2, 0.7], teacher_readout=[0.8, 1.1])
    algorithm = OnlineSGD(0.4, batch_size=3, ridge=0.2, readout_rate=0.7, sphere=sphere)
    compact = equations(problem, algorithm, orthonormal_teachers=False)
    long = equations(problem, algorithm, sizes="given", orthonormal_teachers=False)

    def entry(name, i, j):
        return sympy.Symbol(f"{name}_{{{i + 1}{j + 1}}}", real=True)

    def symmetric(name):
        return sympy.Matrix(2, 2, lambda i, j: entry(name, min(i, j), max(i, j)))

    matrices = {
        "Q": symmetric("Q").subs({entry("Q", i, i): 1 for i in range(2)} if sphere else {}),
        "M": sympy.Matrix(2, 2, lambda i, j: entry("M", i, j)),
        "P": symmetric("P"),
        "A": sympy.diag(*(sympy.Symbol(f"a_{{{i + 1}}}", real=True) for i in range(2))),
        "A^*": sympy.diag(*(sympy.Symbol(f"a_{{{i + 1}}}^*", real=True) for i in range(2))),
    }
    p, k = sympy.Symbol("p", positive=True), sympy.Symbol("k", positive=True)
    explicit = {}
    for name, side in (*compact.drift.items(), ("risk", compact.risk)):
        side = side.subs({p: 2, k: 2}).doit()
        for symbol in side.atoms(sympy.MatrixSymbol):
            side = side.subs(symbol, matrices[symbol.name])
        explicit[name] = side.doit()
    assert sympy.expand(explicit["risk"] - long.risk) == 0
    for key, side in long.drift.items():
        field, _, index = key.partition("[")
        indices = [int(i) for i in index.rstrip("]").split(",")]
        found = explicit[field].as_explicit() if hasattr(explicit[field], "as_explicit") else explicit[field]
        assert sympy.expand(found[tuple(indices) if len(indices) == 2 else (indices[0], 0)] - side) == 0, key


@pytest.mark.parametrize("sphere", [True, False])
@pytest.mark.parametrize("sizes", ["symbolic", pytest.param("given", marks=pytest.mark.slow)])
def test_linear_rates_are_those_of_the_plateau(sphere, sizes):
    problem, algorithm = TwoLayer(3, 2, "square", noise=0.2), OnlineSGD(0.2, batch_size=2, sphere=sphere)
    result = equations(problem, algorithm, "linearised", sizes=sizes)
    expected = dimfree.quadratic.plateau(dimfree.ode(problem, algorithm))
    values = {**result.values, sympy.Symbol("p", positive=True): 3, sympy.Symbol("k", positive=True): 2}
    q = float(sympy.sympify(result.plateau["Q"]).subs(values))
    at = {**values, sympy.Symbol("q", positive=True): q}
    assert_close(q, expected.state.Q[0, 0])
    assert_close(float(result.rates["M"].subs(at)), expected.growth_rate)
    assert_close(float(result.rates["Q"].subs(at)), -expected.decay_rate)
    if expected.norm_decay_rate is not None:
        assert_close(float(result.rates["norm"].subs(at)), -expected.norm_decay_rate)
    assert ("norm" in result.rates) is not sphere


def test_linear_rates_of_tensors_and_cubics_are_derivatives_of_the_drift():
    for problem, algorithm in (
        (SpikedTensor(2, 1.4), OnlineSGD(0.6, ridge=0.1)),
        (SpikedTensor(3, 1.4), OnlineSGD(0.6)),
        (TwoLayer(2, 1, "he3", noise=0.1), OnlineSGD(0.05, sphere=True)),
    ):
        result = equations(problem, algorithm, "linearised")
        q = float(sympy.sympify(result.plateau["Q"]).subs(result.values))
        p, k = problem.width, problem.teacher_width
        at = dimfree.State(Q=q * jnp.eye(p), M=jnp.zeros((p, k)))
        limit = dimfree.ode(problem, algorithm)
        jacobian = jax.jacfwd(lambda v: limit.vector_field(0.0, v, at))(limit.coordinates.pack(at))  # noqa: B023
        slopes = dict(zip(limit.coordinates.labels, np.diag(np.asarray(jacobian)), strict=True))
        values = {**result.values, sympy.Symbol("q", positive=True): q}
        assert_close(float(result.rates["M"].subs(values)), slopes["M[0,0]"])
        if p > 1:
            assert_close(float(result.rates["Q"].subs(values)), slopes["Q[0,1]"])


@pytest.mark.parametrize(
    ("problem", "algorithm", "number"),
    [
        (PhaseRetrieval(1, noise=0.2), OnlineSGD(0.05, sphere=True), 3),
        (PhaseRetrieval(1, noise=0.2), OnlineSGD(0.05), 5),
        (SpikedTensor(2, 1.4), OnlineSGD(0.6, ridge=0.1), 4),
        (SpikedTensor(3, 5.0), OnlineSGD(0.6), 2),
    ],
)
def test_the_library_is_at_rest_at_the_fixed_points(problem, algorithm, number):
    result = equations(problem, algorithm)
    assert len(result.fixed_points) == number
    limit = dimfree.ode(problem, algorithm)
    for point in result.fixed_points:
        at = {key: float(value.subs(result.values)) for key, value in point.items()}
        state = dimfree.State(Q=[[at.get("Q[0,0]", 1.0)]], M=[[at["M[0,0]"]]])
        assert np.max(np.abs(limit.coordinates.pack(limit.drift(0.0, state)))) < 1e-13


def test_the_risk_that_noise_leaves_is_that_of_its_source():
    result = equations(PhaseRetrieval(1, noise=0.2), OnlineSGD(0.05, sphere=True), notation="arnaboldi2023")
    learned = result.fixed_points[-1]["M[0,0]"]
    m, rate, noise = result.symbols["M[0,0]"], *result.values
    excess = result.risk.subs(m, learned) - noise / 2
    assert sympy.simplify(excess - rate * noise / (1 - 6 * rate)) == 0


@pytest.mark.parametrize(
    ("activation", "p", "orders"),
    [("erf", 1, (1, 3, 5, 7)), pytest.param("relu", 2, (1, 2, 3), marks=pytest.mark.slow)],
)
def test_series_in_hermite_coefficients_converge(activation, p, orders):
    problem, algorithm = TwoLayer(p, 1, activation, noise=0.1), OnlineSGD(0.3, sphere=True)
    Q = np.full((p, p), 0.3) + 0.7 * np.eye(p)
    state = dimfree.State(Q=Q, M=np.linspace(0.4, 0.2, p)[:, None])
    exact, risk = dimfree.ode(problem, algorithm).drift(0.0, state), float(problem.risk(state))
    errors = []
    for order in orders:
        module = code_of(equations(problem, algorithm, hermite_order=order))
        of_Q, of_M = module["drift"](Q, np.asarray(state.M))
        errors.append(
            [np.abs(of_Q - exact.Q).max() + np.abs(of_M - exact.M).max(), abs(module["risk"](Q, state.M) - risk)]
        )
    drift, risks = np.transpose(errors)
    assert np.all(drift[:-1] > 2 * drift[1:])
    assert drift[-1] < 0.03 * drift[0]
    assert risks[-1] < 0.1 * risks[0]


@pytest.mark.parametrize("activation", ["tanh", "erf"])
def test_coefficients_of_an_odd_function_vanish_at_even_orders(activation):
    """The rounding of a sum grows as its polynomial does, as the root of n!."""
    network = HermiteNetwork(Alphabet(TwoLayer(1, 1, activation), OnlineSGD(0.3, sphere=True)), 2)
    vanish = [network.coefficient((0, 1, 0), n) == 0 for n in range(40)]
    assert vanish == [n % 2 == 0 for n in range(40)]


def test_a_series_that_ends_is_exact():
    algorithm = OnlineSGD(0.3, sphere=True)
    square = TwoLayer(2, 1, lambda x: 0.4 * x**2 + 0.3 * x, noise=0.1)
    state = random_state(square, algorithm)
    expected = dimfree.ode(square, algorithm, dimfree.GaussHermite(5)).drift(0.0, state)
    # Up to six factors of degree two meet at one field.
    found = code_of(equations(square, algorithm, hermite_order=6))["drift"](state.Q, state.M)
    assert_close(flat(found), flat([expected.Q, expected.M]), 1e-10)


def test_moments_of_order_twelve_are_numbers_of_pairings():
    q, m = sympy.symbols("q m")
    fields = GaussianFields([[q, m], [m, sympy.Integer(1)]])
    u, v = fields.fields
    assert fields.average(u**12).as_expr() == 10395 * q**6
    expected = sum(
        sympy.binomial(6, j) ** 2 * sympy.factorial(j) * _double(5 - j) ** 2 * m**j * q ** ((6 - j) // 2)
        for j in (0, 2, 4, 6)
    )
    assert sympy.expand(fields.average(u**6 * v**6).as_expr() - expected) == 0


def _double(n):
    """The number of pairings of n + 1 things."""
    return int(sympy.factorial2(n)) if n > 0 else 1


def test_a_long_derivation_takes_seconds():
    start = time.process_time()
    problem = TwoLayer(8, 4, "square", noise=0.1, readout=np.arange(1.0, 9.0))
    equations(problem, OnlineSGD(0.1, ridge=0.1, readout_rate=0.2, batch_size=2), orthonormal_teachers=False)
    assert time.process_time() - start < 10


@pytest.mark.slow
def test_the_derivation_of_a_covariance_takes_less_than_a_minute():
    start = time.process_time()
    equations(PhaseRetrieval(2, noise=0.1), OnlineSGD(0.1), "sde", orthonormal_teachers=False)
    assert time.process_time() - start < 60


def test_latex_is_balanced_and_names_what_it_uses():
    for name in ("quadratic, everything at once, in matrices", "erf, one student", "he3", "tensors of any order"):
        problem, algorithm, options = CASES[name]
        text = equations(problem, algorithm, **options).to_latex()
        for left, right in (("{", "}"), (r"\left", r"\right"), (r"\Bigl", r"\Bigr"), (r"\bigl", r"\bigr"), ("(", ")")):
            assert text.count(left) == text.count(right), (name, left)
        assert text.startswith(r"\begin{aligned}")
        assert r"\frac{d" in text
    result = equations(PhaseRetrieval(2, noise=0.1), OnlineSGD(0.1), notation="arnaboldi2023")
    assert result._repr_latex_() == f"$$\n{result.to_latex()}\n$$"
    assert r"\frac{4 \gamma}{p}" in result.to_latex()
    assert r"\eta" not in result.to_latex()


def test_sympy_equations_and_text():
    result = equations(PhaseRetrieval(1), OnlineSGD(0.1, sphere=True))
    (equation,) = result.to_sympy()
    assert equation.rhs == result.drift["M[0,0]"]
    assert "d M / d \\alpha" in str(result)
    assert result.to_dict()["values"] == {"\\eta": 0.1}
    assert len(equations(PhaseRetrieval(2), OnlineSGD(0.1)).to_sympy()) == 2


@pytest.mark.parametrize(
    ("problem", "options"),
    [(PhaseRetrieval(), {"notation": "arnaboldi2023"}), (PhaseRetrieval(2), {}), (PhaseRetrieval(), {"limit": "sde"})],
)
def test_a_learning_rate_of_zero_is_still_a_symbol(problem, options):
    result = equations(problem, OnlineSGD(0.0), **options)
    assert result.to_latex() == equations(problem, OnlineSGD(0.1), **options).to_latex()
    assert 0.0 in result.values.values()
    compile(result.to_python(), "equations", "exec")


REFUSED = {
    "a mixture": (lambda: equations(dimfree.Mixture.binary(2, 1.0), OnlineSGD(0.1)), "no equations in closed form"),
    "an unknown notation": (
        lambda: equations(PhaseRetrieval(), OnlineSGD(0.1), notation="saad"),
        "choose one of dimfree",
    ),
    "tanh without an order": (lambda: equations(TwoLayer(1, 1, "tanh"), OnlineSGD(0.1)), "hermite_order=4"),
    "an order for a polynomial": (
        lambda: equations(PhaseRetrieval(), OnlineSGD(0.1), hermite_order=3),
        "is a polynomial: its equations are exact",
    ),
    "a series with free norms": (
        lambda: equations(TwoLayer(1, 1, "tanh"), OnlineSGD(0.1), hermite_order=3),
        r"Hermite coefficients are those at unit norm",
    ),
    "symbolic widths of a cubic": (
        lambda: equations(TwoLayer(2, 1, "he3"), OnlineSGD(0.1), sizes="symbolic"),
        "only quadratic networks have a compact form",
    ),
    "the diffusion of erf": (lambda: equations(TwoLayer(2, 1, "erf"), OnlineSGD(0.1), "sde"), "no closed form"),
    "the plateau of a linear network": (
        lambda: equations(TwoLayer(1, 1, "linear"), OnlineSGD(0.1, sphere=True), "linearised"),
        "students learn at once",
    ),
    "the plateau with a trained readout": (
        lambda: equations(PhaseRetrieval(2), OnlineSGD(0.1, readout_rate=0.1), "linearised"),
        "readout_rate was given",
    ),
    "a committee in the notation of tensors": (
        lambda: equations(PhaseRetrieval(2), OnlineSGD(0.1), notation="benarous2022"),
        "that source has no such problem",
    ),
    "a committee that nobody can read": (
        lambda: equations(TwoLayer(40, 2, "erf"), OnlineSGD(0.1)),
        "2,822,400 terms: too many to write out; take fewer neurons",
    ),
    "a series that nobody can read": (
        lambda: equations(TwoLayer(2, 1, "tanh"), OnlineSGD(0.1, sphere=True), hermite_order=1_000),
        "take a smaller hermite_order",
    ),
    "a covariance that nobody can read": (
        lambda: equations(TwoLayer(6, 4, "square"), OnlineSGD(0.1), "sde"),
        "too many to write out",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_given_is_refused_with_a_reason(name):
    call, words = REFUSED[name]
    with pytest.raises(InvalidInput, match=words):
        call()


def test_without_sympy_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("dimfree.extras.version", lambda name: None)
    with pytest.raises(InvalidInput, match=r'pip install .*"sympy>=1.14"'):
        equations(PhaseRetrieval(), OnlineSGD(0.1))
