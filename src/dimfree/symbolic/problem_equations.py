"""The equations of each kind of problem, put together."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import sympy

from ..algorithms.online import OnlineAlgorithm
from ..errors import InvalidInput, positive_integer
from ..problems import SpikedTensor, TwoLayer
from ..state import STUDENTS
from .coordinate_equations import conditions, in_indices
from .erf_networks import ErfNetwork
from .hermite_networks import HermiteNetwork
from .matrix_equations import covariance_lines, covariance_source, in_matrices
from .matrix_polynomials import MatrixPolynomial
from .notation import Alphabet
from .polynomial_networks import PolynomialNetwork
from .quadratic_networks import QuadraticNetwork
from .rest_points import linearised, plateau_norm
from .result import Lines, SymbolicLimit
from .tensors import Tensor, in_statistics
from .writing import latex_sum

_MOST_TERMS = 10_000  # in the averages of four neurons: a minute or so
_MOST_MONOMIALS = 4_000  # of the fields, in the average of highest degree: a minute or so


def tensor(
    problem: SpikedTensor, algorithm: OnlineAlgorithm, limit: str, *, symbolic: bool, **options: Any
) -> SymbolicLimit:
    """Spiked tensors."""
    if limit == "linearised" and symbolic:
        raise InvalidInput(
            "sizes = 'symbolic' was given with limit = 'linearised'; the rate of M at M = 0 is another for matrices "
            "than for higher orders. Leave out sizes, for the order of the problem."
        )
    alphabet = Alphabet(problem, algorithm, **options)
    model = Tensor(alphabet, problem.order, symbolic=symbolic)
    if alphabet.notation.name == "benarous2022":
        if algorithm.sphere or algorithm.own or not alphabet.orthonormal_teachers or limit == "linearised":
            raise InvalidInput(
                "notation = 'benarous2022' was given; that source has no sphere, no memory, a signal of norm one and "
                "no general rates at the plateau. Leave out the notation, for ours."
            )
        return in_statistics(alphabet, model, limit)
    _check_notation(alphabet, "benarous2022")
    if limit == "linearised":
        _check_no_memory(alphabet)
    covariance = model.covariance() if limit == "sde" else None
    result = in_indices(alphabet, model.moments(), limit, covariance, extra={"_symbolic": symbolic})
    return _with_rates(result, alphabet) if limit == "linearised" else result


def committee(problem: TwoLayer, algorithm: OnlineAlgorithm, limit: str, **options: Any) -> SymbolicLimit:
    """Error functions."""
    if limit != "ode":
        what = "covariance" if limit == "sde" else "plateau"
        raise InvalidInput(
            f"limit = {limit!r} was given, but with the error function the {what} has no closed form; "
            "limit = 'ode' has one. dimfree.sde and dimfree.fixed_points have the numbers."
        )
    alphabet = Alphabet(problem, algorithm, **options)
    _check_notation(alphabet, "arnaboldi2023", "bocchi2026")
    _check_terms(problem, 1)
    model = ErfNetwork(alphabet)
    lines = {"_lines": model.lines, "_conditions": (*conditions(alphabet), *model.conditions())}
    return in_indices(alphabet, model.moments(), limit, extra=lines)


def expansion(problem: TwoLayer, algorithm: OnlineAlgorithm, limit: str, order: int, **options: Any) -> SymbolicLimit:
    """Any activation, in its Hermite coefficients."""
    order = positive_integer(order, "hermite_order")
    alphabet = Alphabet(problem, algorithm, **options)
    _check_notation(alphabet, "arnaboldi2023", "bocchi2026")
    if not alphabet.sphere or not alphabet.orthonormal_teachers:
        raise InvalidInput(
            f"hermite_order = {order} was given, but norms change (sphere=False) or teachers are any: Hermite "
            "coefficients are those at unit norm. Use sphere=True (--sphere in a terminal) with orthonormal teachers; "
            "dimfree.ode has the numbers of the others."
        )
    if limit == "sde":
        raise InvalidInput(
            "limit = 'sde' was given with hermite_order; the covariance would be a series in coefficients of products "
            "of up to eight factors. limit = 'ode' and 'linearised' are given; dimfree.sde has the numbers."
        )
    if limit == "linearised":
        _check_plateau(alphabet)
    _check_terms(problem, order**2 // 2)
    model = HermiteNetwork(alphabet, order)
    result = in_indices(alphabet, model.moments(), limit)
    result = dataclasses.replace(result, _conditions=(*result._conditions, *model.conditions()))
    return _with_rates(result, alphabet) if limit == "linearised" else result


def network(
    problem: TwoLayer,
    algorithm: OnlineAlgorithm,
    limit: str,
    coefficients: tuple[float, ...],
    *,
    symbolic: bool,
    **options: Any,
) -> SymbolicLimit:
    """Polynomial activations."""
    alphabet = Alphabet(problem, algorithm, symbolic_sizes=symbolic, **options)
    _check_notation(alphabet, "arnaboldi2023", "bocchi2026")
    if limit == "linearised":
        _check_plateau(alphabet)
    powers = tuple(sympy.Rational(str(c)) for c in coefficients)
    if symbolic:
        return _matrices(alphabet, powers, limit)
    _check_size(problem, problem.width * len(algorithm.own), len(powers) - 1, limit)
    model = PolynomialNetwork(alphabet, powers)
    result = in_indices(alphabet, model.moments(), limit, model.covariance() if limit == "sde" else None)
    return _with_rates(result, alphabet) if limit == "linearised" else result


def _with_rates(result: SymbolicLimit, alphabet: Alphabet) -> SymbolicLimit:
    """With the rates at the plateau, and LaTeX that says them."""
    try:
        rates, plateau = linearised(result.drift, result.symbols, alphabet.rate)
    except ValueError as error:
        raise InvalidInput(
            f"limit = 'linearised' was given, but {error}: the activation has a linear part, students learn at "
            "once and there is no plateau to leave. dimfree.fixed_points finds where they come to rest."
        ) from None
    extra = {"rates": rates, "plateau": plateau, "_lines": _rate_lines(alphabet, rates, plateau["norm"])}
    return dataclasses.replace(result, **extra)


def _matrices(alphabet: Alphabet, coefficients: tuple[Any, ...], limit: str) -> SymbolicLimit:
    model = QuadraticNetwork(alphabet, coefficients)
    if limit == "sde":
        if coefficients != (0, 0, 1):
            raise InvalidInput(
                "limit = 'sde' was given with widths as symbols, but the activation is "
                f"{alphabet.network.activation.name!r}; that form is the one of 'square'. Take sizes = 'given'."
            )
        if alphabet.move.pull != {STUDENTS: -alphabet.learning_rate}:
            raise InvalidInput(
                f"limit = 'sde' was given with widths as symbols, but {alphabet.algorithm!r} moves more than the "
                "weights by the gradient, or by another factor; that form is the one of plain SGD. Take sizes = "
                "'given'."
            )
        result = in_matrices(alphabet, model, limit)
        lines, source = result._lines, result._source
        assert source is not None
        return dataclasses.replace(
            result,
            _lines=lambda: (*lines(), *covariance_lines(alphabet)),
            _source=lambda: f"{source()}\n\n{covariance_source(alphabet)}\n",
        )
    if limit == "ode":
        return in_matrices(alphabet, model, limit)
    rates, plateau = _matrix_rates(alphabet, model)
    lines = _rate_lines(alphabet, rates, plateau["norm"])
    return in_matrices(alphabet, model, limit, {"rates": rates, "plateau": plateau, "_lines": lines})


def _matrix_rates(alphabet: Alphabet, model: QuadraticNetwork) -> tuple[dict[str, Any], dict[str, Any]]:
    r"""The terms linear in X and M of the drift at $Q = q I + X$, for any widths."""
    system, p = model.system(), alphabet.p
    small = sympy.Dummy("small")
    q = sympy.Integer(1) if alphabet.sphere else sympy.Symbol("q", positive=True)
    per_clock = alphabet.alpha_per_clock
    near = {
        "Q": MatrixPolynomial.scalar(q) + small * MatrixPolynomial.letter("X"),
        "M": small * MatrixPolynomial.letter("M"),
        "Mt": small * MatrixPolynomial.letter("Mt"),
    }

    def order(words: MatrixPolynomial, power: int) -> dict:
        replaced = (per_clock * words).replace(near, p)
        found = {key: sympy.expand(value).coeff(small, power) for key, value in replaced.terms.items()}
        return {key: value for key, value in found.items() if value != 0}

    of_Q = system.flow["Q"] + system.corrector["Q"]
    rest = order(of_Q, 0).get(((), ()), sympy.Integer(0))
    of_X = order(of_Q, 1)
    own, common = of_X.get((("X",), ()), 0), of_X.get(((), (("X",),)), 0)
    rates = {"M": order(system.flow["M"] + system.corrector["M"], 1)[("M",), ()], "Q": own}
    plateau: dict[str, Any] = {"M": sympy.Integer(0), "Q": q, "norm": sympy.Integer(0)}
    if alphabet.sphere:
        rates = {"M": rates["M"] - rest / 2, "Q": rates["Q"] - rest}
    else:
        rates["norm"] = own + p * common
        plateau |= {"Q": plateau_norm(rest, q, alphabet.rate), "norm": rest}
    return {name: sympy.factor(sympy.expand(value)) for name, value in rates.items()}, plateau


def _rate_lines(alphabet: Alphabet, rates: dict[str, Any], norm: Any) -> Callable[[], Lines]:
    """What writes the linear system; `norm` is the drift of q, for the plateau to be where it vanishes."""
    clock, Q, M = alphabet.notation.clock, alphabet.name("Q"), alphabet.name("M")
    names = {"M": rf"\omega_{{{M}}}", "Q": rf"\omega_{{{Q}}}", "norm": r"\omega_q"}
    moves = {"M": M, "Q": rf"{Q}_{{jl}}", "norm": r"\delta q"}
    where = {"Q": r" \qquad (j \ne l)", "norm": rf" \qquad ({Q} = (q + \delta q) \, I)"}

    def lines() -> Lines:
        linear = tuple(
            (rf"\frac{{d {moves[name]}}}{{d {clock}}}", (rf"{names[name]} \, {moves[name]}{where.get(name, '')}",))
            for name in rates
        )
        values = tuple((names[name], latex_sum(value, alphabet.rate)) for name, value in rates.items())
        return (*linear, *values, *(() if alphabet.sphere else (("0", latex_sum(norm, alphabet.rate)),)))

    return lines


def _check_notation(alphabet: Alphabet, *sources: str) -> None:
    name = alphabet.notation.name
    if name not in ("dimfree", *sources):
        raise InvalidInput(
            f"notation = {name!r} was given, but that source has no such problem; {alphabet.problem!r} can be written "
            f"in {', '.join(('dimfree', *sources))}."
        )


def _check_no_memory(alphabet: Alphabet) -> None:
    if alphabet.algorithm.own:
        raise InvalidInput(
            f"limit = 'linearised' was given, but {alphabet.algorithm!r} has vectors of its own "
            f"({', '.join(alphabet.algorithm.own)}), which move at the plateau: rates are known without. Take 'ode'."
        )


def _check_plateau(alphabet: Alphabet) -> None:
    _check_no_memory(alphabet)
    for wrong, words in (
        (alphabet.trained, "readout_rate was given"),
        (not alphabet.unit_readout or not alphabet.unit_teacher_readout, "the problem has readouts other than one"),
        (not alphabet.orthonormal_teachers, "orthonormal_teachers = False was given"),
    ):
        if wrong:
            raise InvalidInput(
                f"limit = 'linearised' was given, but {words}; the plateau is known for fixed readouts of ones and "
                "orthonormal teachers. dimfree.fixed_points finds the others in numbers."
            )


def _check_terms(problem: TwoLayer, each: int) -> None:
    """Refuse equations that nobody could read and that would take hours; `each` term is written in so many."""
    terms = each * (problem.width * (problem.width + problem.teacher_width)) ** 2
    if terms > _MOST_TERMS:
        remedy = "take fewer neurons" if each == 1 else "take a smaller hermite_order or fewer neurons"
        raise InvalidInput(
            f"{problem!r} has averages of four neurons with about {terms:,} terms: too many to write out; {remedy}. "
            "dimfree.ode has the numbers."
        )


def _check_size(problem: TwoLayer, unseen: int, degree: int, limit: str) -> None:
    """Refuse equations that nobody could read and that would take hours; `unseen` fields enter at most twice."""
    fields = problem.width + problem.teacher_width
    highest = (4 if limit == "sde" else 2) * (2 * degree - 1)
    monomials = math.comb(highest + fields, fields) * (math.comb(unseen + 2, 2) if limit == "sde" else 1)
    if monomials > _MOST_MONOMIALS:
        remedy = "take sizes = 'symbolic'" if problem.activation.name == "square" else "take fewer neurons"
        raise InvalidInput(
            f"{problem!r} has averages of degree {highest} in {fields} fields, of {monomials} kinds: too many to write "
            f"out; {remedy}. dimfree.{'sde' if limit == 'sde' else 'ode'} has the numbers."
        )
