"""The source's problem, derived in its notation."""

import functools
from typing import Any

from dimfree import OnlineSGD, PhaseRetrieval, SymbolicLimit
from dimfree import equations as derive

P = 2  # width of what is compared coordinate by coordinate


@functools.cache
def derived(
    p: int, *, rho: bool = False, limit: Any = "ode", sphere: bool = False, trained: bool = False
) -> SymbolicLimit:
    """The source's problem in its notation, one equation for each coordinate."""
    sgd = OnlineSGD(0.1, sphere=sphere, readout_rate=0.1 if trained else None)
    options = {"notation": "arnaboldi2023", "sizes": "given", "orthonormal_teachers": not rho}
    return derive(PhaseRetrieval(p, noise=0.1), sgd, limit, **options)


def gamma_and_noise(result: SymbolicLimit) -> tuple[Any, Any]:
    """The learning rate and the variance of the noise."""
    gamma, noise = result.values
    return gamma, noise
