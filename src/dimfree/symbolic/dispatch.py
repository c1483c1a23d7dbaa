"""`dimfree.equations`: a limit of SGD, printed."""

from typing import Any, Literal

import jax.numpy as jnp

from .. import extras
from ..algorithms.online import OnlineAlgorithm, check_online
from ..errors import InvalidInput, flag, shown
from ..gaussian.erf import Erf
from ..problems import Problem, SpikedTensor, TwoLayer
from ..problems.base import check_problem
from .result import SymbolicLimit

Sizes = Literal["symbolic", "given"]
LIMITS = ("ode", "sde", "linearised")


def equations(
    problem: Problem,
    algorithm: OnlineAlgorithm,
    limit: Literal["ode", "sde", "linearised"] = "ode",
    *,
    notation: str = "dimfree",
    sizes: Sizes | None = None,
    hermite_order: int | None = None,
    orthonormal_teachers: bool = True,
) -> SymbolicLimit:
    r"""A limit of SGD in symbols: derived, not looked up; to read, to check a publication with, or to take away.

    For polynomial activations every average is a finite sum, by Wick's theorem, and so are drift, corrector and
    covariance; for the error function the drift is a sum of the integrals $I_2, I_3, I_4$ of Saad and Solla; for any
    other activation, on the sphere, it is a series in Hermite coefficients up to an order N.

    **Arguments:**

    - `problem`: a `TwoLayer` (or `PhaseRetrieval`, `SingleIndex` with one activation) or a `SpikedTensor`.
    - `algorithm`: an `OnlineSGD`, `Momentum`, `Averaged`, `WeightDecay`, or any other that states a move only. A
      `HeavyBall` is written as what it becomes as d grows, SGD at another rate.
    - `limit`: `"ode"`; `"sde"`, with the covariance that a run gains per unit of time; `"linearised"`, with the rates
      at which overlaps leave the plateau $Q = q I$, $M = 0$.
    - `notation`: `"dimfree"`, or the symbols and the clock of a source: `"arnaboldi2023"`, `"bocchi2026"`,
      `"benarous2022"`.
    - `sizes`: `"symbolic"` leaves the widths p and k (the order of a tensor) as symbols, which quadratic networks and
      tensors allow, in products and traces of Q, M and P; `"given"` writes one equation for each coordinate. If left
      out, symbolic for quadratic networks with more than one student or teacher.
    - `hermite_order`: N, for activations that are not polynomial. What one field contributes is expanded up to it:
      $c_n^{(r,s)} = \mathbb{E}[g'(z)^r g(z)^s \mathrm{He}_n(z)]$, $n \le N$.
    - `orthonormal_teachers`: whether P is the identity, as that of a `State` is unless it is given.

    **Returns:** a [`SymbolicLimit`].

    Needs sympy, of the extra `exact`.

    ??? example
        >>> import dimfree
        >>> problem, sgd = dimfree.PhaseRetrieval(), dimfree.OnlineSGD(0.1, sphere=True)
        >>> dimfree.equations(problem, sgd, notation="arnaboldi2023").drift["M[0,0]"]
        24*\gamma*m**3 - 24*\gamma*m - 4*m**3 + 4*m
    """
    orthonormal_teachers = flag(orthonormal_teachers, "orthonormal_teachers")
    check_problem(problem)
    check_online(algorithm)
    if algorithm.transform is not None:
        raise InvalidInput(
            f"{algorithm!r} changes the slopes of the loss before they are used (used_slopes): averages over them have "
            "no closed form. Equations are given for algorithms that state a move only; dimfree.ode has the limit in "
            "numbers."
        )
    algorithm = algorithm.slow
    if algorithm.measured(1, 1) or algorithm.move(jnp.zeros(())).point:
        raise InvalidInput(
            f"Equations of {algorithm!r} are not written: they are for gradients at the weights, and rates that do not "
            "depend on what an algorithm measures. dimfree.ode has the limit in numbers."
        )
    if limit not in LIMITS:
        raise InvalidInput(f"limit = {shown(limit)} was given; choose one of {', '.join(LIMITS)}.")
    if sizes not in (None, "symbolic", "given"):
        raise InvalidInput(f"sizes = {sizes!r} was given; choose 'symbolic' or 'given'.")
    if extras.absent(["sympy"]):
        raise InvalidInput(f"Equations in symbols need sympy: {extras.install('exact')}")
    if algorithm.readout_rate is not None and problem.readout is None:
        raise InvalidInput("readout_rate was given, but the problem has no readout to train.")
    if not isinstance(problem, TwoLayer | SpikedTensor):
        raise InvalidInput(
            f"{problem!r} has no equations in closed form: averages over its loss are integrals. They are given for "
            "TwoLayer, PhaseRetrieval and SpikedTensor; dimfree.ode has the limit of any problem in numbers."
        )
    options: dict[str, Any] = {"notation": notation, "orthonormal_teachers": orthonormal_teachers}
    if isinstance(problem, SpikedTensor):
        from .problem_equations import tensor

        return tensor(problem, algorithm, limit, symbolic=sizes == "symbolic", **options)
    from .problem_equations import committee, expansion, network

    integrals = problem.closed_integrals
    if not problem.one_activation:
        raise InvalidInput(
            f"The students' activation is {problem.activation.name!r}, the teachers' "
            f"{problem.teacher_activation.name!r}: equations are given where both are the same. dimfree.ode has the "
            "limit in numbers."
        )
    coefficients = None if integrals is None else integrals.polynomial
    if coefficients is not None and hermite_order is not None:
        raise InvalidInput(
            f"hermite_order = {hermite_order} was given, but the activation {problem.activation.name!r} is a "
            "polynomial: its equations are exact without; leave it out."
        )
    quadratic = coefficients is not None and len(coefficients) == 3 and coefficients[1] == 0
    if sizes == "symbolic" and not quadratic:
        raise InvalidInput(
            f"sizes = 'symbolic' was given, but the activation is {problem.activation.name!r}: with widths as symbols "
            "only quadratic networks have a compact form; leave it out, for the widths of the problem."
        )
    if hermite_order is not None:
        return expansion(problem, algorithm, limit, hermite_order, **options)
    if isinstance(integrals, Erf):
        return committee(problem, algorithm, limit, **options)
    if coefficients is None:
        raise InvalidInput(
            f"The activation {problem.activation.name!r} is neither a polynomial nor erf: its averages have no closed "
            "form. On the sphere, hermite_order=4 (--hermite-order 4 --sphere in a terminal), say, gives a series in "
            "its Hermite coefficients up to that order."
        )
    wide = problem.width * problem.teacher_width > 1
    symbolic = sizes == "symbolic" or (sizes is None and quadratic and wide and limit != "sde")
    return network(problem, algorithm, limit, coefficients, symbolic=symbolic, **options)
