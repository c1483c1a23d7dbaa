"""Problems with a name of their own."""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..gaussian.activations import Activation, as_activation
from .two_layer import MultiIndex, Normalisation, TwoLayer


def PhaseRetrieval(width: int = 1, noise: float | Array = 0.0, readout: ArrayLike | Array | None = None) -> TwoLayer:
    r"""Recovering a signal from squared projections: a quadratic network of any width and one teacher direction.

    $$ \tfrac12 \Big( \tfrac1p \sum_j a_j \lambda_j^2 - (\lambda^*)^2 - \sqrt{\text{noise}} \, z \Big)^2 $$

    **Arguments:** as for [`TwoLayer`].

    **Returns:** a [`TwoLayer`] with the square activation.

    Arnaboldi et al. 2023, eqs. (2)-(4). Eq. (10) there lacks the square on the teacher's field.
    """
    return TwoLayer(width=width, teacher_width=1, activation="square", noise=noise, readout=readout)


class _OfTheOnlyField(eqx.Module):
    """A link of one field."""

    of: Activation

    @property
    def name(self) -> str:
        return self.of.name

    def __call__(self, teacher: Float[Array, "1"]) -> Float[Array, ""]:
        return self.of.function(teacher[0])


def SingleIndex(
    link: str | Callable,
    activation: str | Callable | None = None,
    width: int = 1,
    noise: float | Array = 0.0,
    readout: ArrayLike | Array | None = None,
    normalisation: Normalisation = "mean",
) -> TwoLayer | MultiIndex:
    r"""One direction to learn, seen through a link function: labels $\text{link}(\lambda^*) + \sqrt{\text{noise}}\, z$.

    **Arguments:**

    - `link`: a name, or any JAX function of a number.
    - `activation`: the activation of the student; the link if left out (then the averages are exact if the link has a
      name).
    - `width`, `noise`, `readout`, `normalisation`: as for [`TwoLayer`].

    **Returns:** a [`TwoLayer`] if the activation is the link, otherwise a [`MultiIndex`].
    """
    target = as_activation(link, "link")
    if activation is None or (isinstance(activation, str | Callable) and activation == link):
        return TwoLayer(width, 1, link, noise=noise, readout=readout, normalisation=normalisation)
    return MultiIndex(
        _OfTheOnlyField(target),
        width=width,
        teacher_width=1,
        activation=activation,
        noise=noise,
        readout=readout,
        normalisation=normalisation,
    )
