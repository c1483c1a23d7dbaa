"""Optimisers of optax as algorithms: a chain of transformations is read, and stated again in units of d."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import InvalidInput, positive_integer, shown
from .coordinate_wise import Adam, SignDescent
from .memory import HeavyBall, WeightDecay
from .norms import Clipped
from .online import OnlineAlgorithm, OnlineSGD

_Rate = Any  # a number, or a function of the number of steps made

_KNOWN = (
    "add_decayed_weights, clip_by_global_norm, identity, scale, scale_by_adam, scale_by_learning_rate, "
    "scale_by_schedule, scale_by_sign, trace, and chains of these, such as adam, adamw, sgd and sign_sgd"
)


def from_optax(transformation: Any, *, d: int, batch_size: int = 1) -> OnlineAlgorithm:
    r"""Translate an optimiser of optax into an algorithm in dimension d.

    The parameters are the weights W of shape `(p, d)`, with rows of norm $\sqrt d$, and the loss is a function of $W x
    / \sqrt d$, averaged over the batch. Then optax and dimfree have the same gradient, and

    | in optax | here |
    | --- | --- |
    | a learning rate | the same |
    | a schedule, a function of the step | a function of alpha = step x batch_size / d |
    | `trace(decay)`, `sgd(momentum=...)` | `HeavyBall(momentum=decay)`, with `nesterov=True` its step of Nesterov |
    | `clip_by_global_norm(c)`, first in the chain | `Clipped(norm=c)`, of the gradient of all students together |
    | `adam(rate, b1, b2, eps)` | `Adam` at the rate $\sqrt d$ rate, forgetting = d (1 - b2), epsilon = $\sqrt d$ eps |
    | `sign_sgd(rate)` | `SignDescent` at the rate $\sqrt d$ rate |
    | `add_decayed_weights(r)` | `ridge` = d r; after a momentum or Adam, `WeightDecay` by d r x learning rate |

    dimfree reads the chain from the closures of optax. It refuses, by name, transformations that it does not know, and
    orders of the chain that have no counterpart here.

    **Arguments:**

    - `transformation`: an `optax.GradientTransformation`, such as `optax.sgd(0.1, momentum=0.9)`.
    - `d`: the dimension in which it is used.
    - `batch_size`: fresh samples in a step.

    **Returns:** an [`OnlineSGD`], [`HeavyBall`], ... that makes the same steps in dimension d as the transformation.

    ??? example
        >>> import dimfree, optax
        >>> optimiser = optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(0.1))
        >>> algorithm = dimfree.from_optax(optimiser, d=1000)
        >>> float(algorithm.ridge)
        0.1
    """
    d, batch_size = positive_integer(d, "d"), positive_integer(batch_size, "batch_size")
    update = getattr(transformation, "update", None)
    if not (callable(update) and hasattr(transformation, "init")):
        raise InvalidInput(
            f"transformation = {shown(transformation)} was given; pass an optimiser of optax, such as optax.sgd(0.1)."
        )
    chain = _Chain()
    for name, settings in _flattened(update):
        getattr(chain, name)(**settings)
    return chain.algorithm(d, batch_size)


def _flattened(update: Callable) -> Iterator[tuple[str, dict[str, Any]]]:
    """The transformations that an update consists of, in their order: their names and what their closures hold."""
    module, name = getattr(update, "__module__", ""), getattr(update, "__qualname__", repr(update)).split(".")[0]
    if not module.startswith("optax."):
        raise InvalidInput(
            f"{module}.{name} is not a transformation of optax; state it as an algorithm of dimfree (see 'Adding an "
            "algorithm' in the documentation)."
        )
    function = getattr(update, "__func__", update)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    held = {variable: cell.cell_contents for variable, cell in cells}
    if name == "chain" and set(held) == {"update_fns"}:
        for each in held["update_fns"]:
            yield from _flattened(each)
    elif name == "named_chain" and set(held) == {"transforms"}:
        for _, each in held["transforms"]:
            yield from _flattened(each.update)
    elif name == "with_extra_args_support" and set(held) == {"tx"}:
        yield from _flattened(held["tx"].update)
    elif _SETTINGS.get(name) == set(held):
        yield name, held
    elif name in _SETTINGS:
        raise InvalidInput(
            f"optax.{name} of this version of optax holds {', '.join(sorted(held)) or 'nothing'}; dimfree expects "
            f"{', '.join(sorted(_SETTINGS[name])) or 'nothing'}. Use optax 0.2.8, or state the algorithm in dimfree."
        )
    else:
        raise InvalidInput(f"optax.{name} is not one that dimfree knows; it knows {_KNOWN}.")


# What the closure of each transformation holds.
_SETTINGS: dict[str, set[str]] = {
    "add_decayed_weights": {"weight_decay"},
    "clip_by_global_norm": {"max_norm"},
    "identity": set(),
    "scale": {"step_size"},
    "scale_by_adam": {"b1", "b2", "eps", "eps_root", "mu_dtype", "nesterov"},
    "scale_by_schedule": {"step_size_fn"},
    "scale_by_sign": set(),
    "trace": {"decay", "nesterov", "accumulator_dtype"},
}


class _Chain:
    """A chain as far as it has been read: updates are gradient x memory of gradients + decay x weights."""

    def __init__(self) -> None:
        self.gradient: _Rate = 1.0
        self.decay: _Rate = 0.0
        self.ridge: Any = 0.0  # the weights in what the momentum remembers, in units of the gradient
        self.momentum: tuple[Any, bool] | None = None
        self.norm: Any = None  # at which the gradient is clipped
        self.by_coordinate: Callable[[Any, int, int], OnlineAlgorithm] | None = None  # of the rate, d, the batch

    # The transformations, by their names.

    def identity(self) -> None:
        pass

    def scale(self, step_size: Any) -> None:
        if not callable(step_size) and step_size == 0:
            raise InvalidInput("The chain multiplies by zero (a learning rate of 0?): nothing moves.")
        self.gradient, self.decay = _times(self.gradient, step_size), _times(self.decay, step_size)

    def scale_by_schedule(self, step_size_fn: Callable) -> None:
        self.scale(step_size_fn)

    def add_decayed_weights(self, weight_decay: Any) -> None:
        self.decay = _plus(self.decay, weight_decay)

    def clip_by_global_norm(self, max_norm: Any) -> None:
        self._check_plain("clip_by_global_norm", "first, before rates, decay and momentum")
        if self.norm is not None:
            raise InvalidInput("The chain has optax.clip_by_global_norm twice; give the smaller norm once.")
        self.norm = max_norm

    def scale_by_adam(self, b1: Any, b2: Any, eps: Any, eps_root: Any, mu_dtype: Any, nesterov: bool) -> None:
        self._check_plain("scale_by_adam", "before rates, decay and momentum, as in optax.adam and optax.adamw")
        if nesterov or mu_dtype is not None or eps_root != 0:
            raise InvalidInput(
                f"optax.scale_by_adam was given nesterov = {nesterov}, eps_root = {eps_root}, mu_dtype = {mu_dtype}; "
                "the Adam here has none of these."
            )

        def adam(rate: Any, d: int, batch_size: int) -> OnlineAlgorithm:
            return Adam(rate, b1, forgetting=d * (1 - b2), epsilon=d**0.5 * eps, batch_size=batch_size)

        self.by_coordinate = adam

    def scale_by_sign(self) -> None:
        self._check_plain("scale_by_sign", "before rates, decay and momentum, as in optax.sign_sgd")
        self.by_coordinate = lambda rate, d, batch_size: SignDescent(rate, batch_size)

    def _check_plain(self, name: str, where: str) -> None:
        scaled = callable(self.gradient) or callable(self.decay) or self.gradient != 1 or self.decay != 0
        if scaled or self.momentum is not None or self.by_coordinate is not None:
            raise InvalidInput(
                f"The chain has optax.{name} after what is not the gradient of the loss alone; here it comes {where}."
            )

    def trace(self, decay: Any, nesterov: bool, accumulator_dtype: Any) -> None:
        if self.momentum is not None:
            raise InvalidInput("The chain has optax.trace twice; an algorithm here has one momentum.")
        if self.by_coordinate is not None:
            raise InvalidInput("The chain has optax.trace after scaling each coordinate; that is not known here.")
        if callable(self.gradient) or callable(self.decay):
            raise InvalidInput(
                "The chain has a schedule before optax.trace, so that the momentum remembers old rates; here a "
                "schedule comes last. Put the trace before it, as optax.sgd does."
            )
        if accumulator_dtype is not None:
            raise InvalidInput("optax.trace was given an accumulator_dtype; vectors here have one precision.")
        # A trace is linear: a number before it may as well come after.
        self.ridge, self.decay = self.decay / self.gradient, 0.0
        self.momentum = decay, nesterov

    # What they amount to.

    def algorithm(self, d: int, batch_size: int) -> OnlineAlgorithm:
        """In dimension d."""
        if not callable(self.gradient) and self.gradient > 0:
            raise InvalidInput(
                f"The chain moves the weights by {float(self.gradient):g} times the gradient: it climbs. End it with "
                "optax.scale_by_learning_rate(...), as optax.sgd does."
            )

        def in_alpha(rate: _Rate) -> Any:
            if not callable(rate):
                return rate
            return lambda alpha: rate(_steps(alpha, d / batch_size))

        ridge, decay = self.ridge, self.decay
        plain = self.momentum is None and self.by_coordinate is None
        if plain and not callable(decay) and not callable(self.gradient):
            ridge, decay = decay / self.gradient, 0.0  # without a memory both are the same
        learning_rate = in_alpha(_times(self.gradient, -1.0))
        if self.by_coordinate is not None:
            found = self.by_coordinate(in_alpha(_times(self.gradient, -(d**0.5))), d, batch_size)
        elif self.momentum is None:
            found = OnlineSGD(learning_rate, batch_size, ridge=d * ridge)
        else:
            momentum, nesterov = self.momentum
            found = HeavyBall(learning_rate, momentum, batch_size, ridge=d * ridge, nesterov=nesterov)
        if callable(decay) or decay != 0:
            found = WeightDecay(found, in_alpha(_times(decay, -float(d))))
        return found if self.norm is None else Clipped(found, self.norm)


def _steps(alpha: Float[Array, ""], per_alpha: float) -> Float[Array, ""]:
    """The number of steps made at alpha: whole numbers where a simulation asks, for schedules that jump at them."""
    steps = jnp.asarray(alpha, float) * per_alpha
    whole = jnp.round(steps)
    near = jnp.abs(steps - whole) < 1e-9 * (1 + whole)
    return steps + jax.lax.stop_gradient(jnp.where(near, whole - steps, 0.0))


def _at(rate: _Rate, step: Any) -> Any:
    return rate(step) if callable(rate) else rate


def _times(one: _Rate, other: _Rate) -> _Rate:
    if callable(one) or callable(other):
        return lambda step: _at(one, step) * _at(other, step)
    return one * other


def _plus(one: _Rate, other: _Rate) -> _Rate:
    if callable(one) or callable(other):
        return lambda step: _at(one, step) + _at(other, step)
    return one + other
