"""What can be chosen in the explorer."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import registry
from ..algorithms import PiecewiseLinear
from ..algorithms.online import OnlineAlgorithm
from ..errors import InvalidInput, nonnegative_number, positive_integer, positive_number
from ..problems import Mixture, TwoLayer
from ..problems.base import check_classes

RUNS = 16
WIDTHS = (1, 2, 3, 4)
QUANTITIES = ("risk", "accuracy")
DIMENSIONS = (100, 200, 300, 500, 1_000, 2_000, 5_000, 10_000)
SEEDS = tuple(range(10_001))
THRESHOLD = 0.1  # of the plateau's excess risk, which a run that has left it has lost
_DECAY = 10.0  # samples per dimension after which a rate that falls as 1/alpha has halved


@dataclasses.dataclass(frozen=True)
class Optimiser:
    """How the weights move.

    - `title`: what it is called.
    - `name`: its name in the library, and `arguments`: those that no slider sets; LEARNING_RATE is the slider's.
    - `beside`: what stands beside it, as a study file names it, and its number.
    """

    title: str
    name: str = "OnlineSGD"
    arguments: dict[str, float | str] = dataclasses.field(default_factory=dict)
    beside: tuple[str, float] | None = None

    def make(self, learning_rate: Any, sphere: bool) -> OnlineAlgorithm:
        """The algorithm."""
        own = {name: learning_rate if value == LEARNING_RATE else value for name, value in self.arguments.items()}
        beside = dict([self.beside]) if self.beside else {}
        given = {"learning_rate": learning_rate, **own, "sphere": sphere, **beside}
        return registry.make("algorithm", self.name, given)

    def call(self, learning_rate: str, sphere: bool) -> str:
        """The same as text."""
        own = "".join(
            f", {name}={learning_rate if value == LEARNING_RATE else value}" for name, value in self.arguments.items()
        )
        call = f"dimfree.{self.name}(learning_rate={learning_rate}{own}{', sphere=True' if sphere else ''})"
        if self.beside is None:
            return call
        (name, argument), number = registry.BESIDE[self.beside[0]], self.beside[1]
        return f"dimfree.{name}({call}, {argument}={number})"


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How the learning rate changes: `make` from the slider's rate and the last alpha, `call` the same as text."""

    title: str
    make: Callable[[float, float], Any]
    call: Callable[[float, float], str]


LEARNING_RATE = "learning_rate"
OPTIMISERS = {
    "sgd": Optimiser("SGD"),
    "momentum": Optimiser("SGD with momentum", "Momentum", {"momentum_rate": LEARNING_RATE, "forgetting": 1.0}),
    "averaged": Optimiser("SGD, average of the weights", beside=("average", 0.1)),
    "clipped": Optimiser("SGD, slopes clipped at 0.3", beside=("clip_slopes", 0.3)),
}
SCHEDULES = {
    "constant": Schedule("constant", lambda rate, end: rate, lambda rate, end: f"{rate}"),
    "linear": Schedule(
        "falls to zero at the end",
        lambda rate, end: PiecewiseLinear([0.0, end], [rate, 0.0]),
        lambda rate, end: f"dimfree.PiecewiseLinear([0.0, {end}], [{rate}, 0.0])",
    ),
    "inverse": Schedule(
        f"falls as 1 / (1 + α/{_DECAY:g})",
        lambda rate, end: lambda alpha: rate / (1 + alpha / _DECAY),
        lambda rate, end: f"lambda alpha: {rate} / (1 + alpha / {_DECAY})",
    ),
}


@dataclasses.dataclass(frozen=True)
class Choice:
    """A problem to choose, with what its sliders offer.

    - `title`, `words`: what it is called, and what is seen in it.
    - `problem`: its name in the library, and `arguments`: those that no slider sets.
    - `rates`, `noises`, `alphas`: the steps of the sliders.
    - `exponents`: those of the slider of a power law, which the spectrum of the inputs has; 0 is isotropic, and there
      is no slider if there are none.
    - `widths`: how many students there may be.
    """

    title: str
    words: str
    problem: str
    arguments: dict[str, Any]
    rates: tuple[float, ...]
    noises: tuple[float, ...]
    alphas: tuple[float, ...]
    default: "Settings"
    exponents: tuple[float, ...] = ()
    widths: tuple[int, ...] = WIDTHS

    @property
    def teacher_width(self) -> int:
        return self.arguments.get("teacher_width", 1)

    @property
    def classifies(self) -> bool:
        """Whether there is an accuracy beside the risk."""
        return self.default.network.classifies

    @property
    def has_clusters(self) -> bool:
        """Whether the noise is that of the inputs in their clusters, rather than of the labels."""
        return self.problem == "Mixture"

    @property
    def searched_rates(self) -> tuple[float, float]:
        """Between which learning rates the best schedule is searched: from a tenth of the slider's lowest one."""
        return round(self.rates[0] / 10, 6), self.rates[-1]

    @property
    def noise_title(self) -> str:
        """What the slider of the noise is called."""
        return "Variance of a cluster, 1/snr" if self.has_clusters else "Label noise (variance)"

    @property
    def steps(self) -> dict[str, tuple]:
        """What each setting can be, in the order of the controls; the first of a pair of booleans is off."""
        steps = {
            "quantity": QUANTITIES if self.classifies else (),
            "width": self.widths,
            "learning_rate": self.rates,
            "schedule": tuple(SCHEDULES),
            "optimiser": tuple(OPTIMISERS),
            "noise": self.noises,
            "exponent": self.exponents,
            "d": DIMENSIONS,
            "alpha": self.alphas,
            "sphere": (False, True),
            "log": (False, True),
            "seed": SEEDS,
        }
        return {name: values for name, values in steps.items() if values}

    def make(self, width: int, noise: float, exponent: float) -> TwoLayer | Mixture:
        """The problem."""
        if self.has_clusters:
            return registry.make("problem", self.problem, {"width": width, "snr": 1 / noise, **self.arguments})
        spectrum = {} if not exponent else {"spectrum": {"name": "power_law", "exponent": exponent, **_POWER_LAW}}
        return registry.make("problem", self.problem, {"width": width, **self.arguments, "noise": noise, **spectrum})

    def call(self, width: int, noise: float, exponent: float) -> str:
        """The same as text."""
        arguments = "".join(f"{name}={json.dumps(value)}, " for name, value in self.arguments.items())
        if self.has_clusters:
            return f"dimfree.{self.problem}({arguments}width={width}, snr=1 / {noise})"
        call = f"dimfree.{self.problem}(width={width}, {arguments}noise={noise})"
        if not exponent:
            return call
        settings = "".join(f", {name}={value}" for name, value in _POWER_LAW.items())
        return f"{call}.with_inputs(\n    dimfree.Spectrum.power_law({exponent}{settings})\n)"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Where the sliders are."""

    problem: str = "phase-retrieval"
    width: int = 2
    noise: float = 0.0
    learning_rate: float = 0.1
    d: int = 500
    alpha: float = 40.0
    sphere: bool = True
    seed: int = 0
    log: bool = False
    exponent: float = 0.0  # of the inputs' spectrum, where it is a power law
    quantity: str = "risk"  # what the learning curves are of; "accuracy" where there are classes
    optimiser: str = "sgd"
    schedule: str = "constant"  # of the learning rate

    def checked(self) -> "Settings":
        """The same, or an error that says what cannot be."""
        if self.problem not in PROBLEMS:
            raise InvalidInput(f"problem = {self.problem!r} was given; choose one of {', '.join(PROBLEMS)}.")
        positive_integer(self.width, "width")
        positive_integer(self.d, "d", minimum=self.width + self.choice.teacher_width)
        positive_integer(self.seed, "seed", minimum=0)
        nonnegative_number(self.noise, "noise", meaning=" (it is the variance of the label noise)")
        if self.choice.has_clusters and self.noise == 0:
            raise InvalidInput("noise = 0 was given; it is the variance of a cluster, which must be positive.")
        for name, known in (("quantity", QUANTITIES), ("optimiser", OPTIMISERS), ("schedule", SCHEDULES)):
            if getattr(self, name) not in known:
                raise InvalidInput(f"{name} = {getattr(self, name)!r} was given; choose one of {', '.join(known)}.")
        if self.quantity == "accuracy":
            check_classes(self.network, "quantity = 'accuracy'")
        nonnegative_number(self.exponent, "exponent", meaning=" (0 is isotropic)")
        if self.exponent and not self.choice.exponents:
            raise InvalidInput(f"exponent = {self.exponent} was given; the inputs of {self.problem} have no power law.")
        for name, value in (("learning_rate", self.learning_rate), ("alpha", self.alpha)):
            positive_number(value, name)
        if self.alpha * self.d < 400:
            raise InvalidInput(
                f"alpha = {self.alpha:g} in d = {self.d} are {self.alpha * self.d:.0f} samples; 201 times are drawn, "
                "so take at least 400."
            )
        return self

    @property
    def choice(self) -> Choice:
        return PROBLEMS[self.problem]

    @property
    def network(self) -> TwoLayer | Mixture:
        """The problem at these settings."""
        return self.choice.make(self.width, self.noise, self.exponent)

    @property
    def call(self) -> str:
        """The problem as text."""
        return self.choice.call(self.width, self.noise, self.exponent)

    @property
    def algorithm(self) -> Any:
        """How the weights move."""
        rate = SCHEDULES[self.schedule].make(self.learning_rate, self.alpha)
        return OPTIMISERS[self.optimiser].make(rate, self.sphere)

    @property
    def algorithm_statement(self) -> str:
        """The same as a line of code, or two."""
        rate = SCHEDULES[self.schedule].call(self.learning_rate, self.alpha)
        optimiser = OPTIMISERS[self.optimiser]
        if self.schedule == "constant":
            return f"sgd = {optimiser.call(rate, self.sphere)}\n"
        return f"learning_rate = {rate}\nsgd = {optimiser.call(LEARNING_RATE, self.sphere)}\n"

    @property
    def is_plain(self) -> bool:
        """Whether it is SGD at a constant rate."""
        return self.optimiser == "sgd" and self.schedule == "constant"

    @property
    def averages(self) -> bool:
        """Whether what is learned is the average of the weights."""
        return self.optimiser == "averaged"

    @property
    def even(self) -> bool:
        """Whether the sign of a student makes no difference."""
        return self.network.activation.name == "square"

    @property
    def rotated(self) -> bool:
        """Whether students that are rotated among themselves are the same network, which the sphere forbids."""
        return self.even and not self.sphere and self.width > 1

    @property
    def alphas(self) -> np.ndarray:
        """The times that are drawn: 201, each a whole number of samples, so that theory and simulation share them."""
        return np.round(np.linspace(0.0, self.alpha, 201) * self.d) / self.d


def _steps(low: float, high: float, step: float) -> tuple[float, ...]:
    return tuple(float(value) for value in np.round(np.arange(low, high + step / 2, step), 6))


_POWER_LAW = {"dimensions": 100, "blocks": 12}  # no more dimensions than the slider of d has
_EXPONENTS = _steps(0.0, 2.0, 0.25)
_NOISES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)

PROBLEMS = {
    "phase-retrieval": Choice(
        title="Phase retrieval",
        words="One teacher direction, seen through its square. A random start knows nothing of it, and the square "
        "hides its sign: SGD stays on a plateau of order log(d) before it learns.",
        problem="PhaseRetrieval",
        arguments={},
        rates=_steps(0.02, 0.4, 0.01),
        noises=_NOISES,
        alphas=_steps(10.0, 100.0, 5.0),
        exponents=_EXPONENTS,
        default=Settings(),
    ),
    "two-quadratic-teachers": Choice(
        title="Two quadratic teachers",
        words="Two directions, each seen through its square. One student can learn one of them at most; two or more "
        "share them.",
        problem="TwoLayer",
        arguments={"teacher_width": 2, "activation": "square"},
        rates=_steps(0.02, 0.4, 0.01),
        noises=_NOISES,
        alphas=_steps(10.0, 150.0, 5.0),
        exponents=_EXPONENTS,
        default=Settings(problem="two-quadratic-teachers", sphere=False, alpha=80.0, d=300),
    ),
    "committee": Choice(
        title="Committee with erf",
        words="Two teacher neurons with the error function. All students first learn what the teachers have in common; "
        "then they wait, alike, until they specialise.",
        problem="TwoLayer",
        arguments={"teacher_width": 2, "activation": "erf"},
        rates=_steps(0.5, 10.0, 0.25),
        noises=(0.0, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
        alphas=_steps(10.0, 300.0, 10.0),
        exponents=_EXPONENTS,
        default=Settings(problem="committee", learning_rate=5.0, sphere=False, alpha=100.0, d=200, log=True),
    ),
    "one-direction": Choice(
        title="One direction, erf",
        words="One teacher direction, seen through the error function, which has a linear part: there is no plateau, "
        "and SGD learns at once.",
        problem="TwoLayer",
        arguments={"teacher_width": 1, "activation": "erf"},
        rates=_steps(0.25, 10.0, 0.25),
        noises=(0.0, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
        alphas=_steps(5.0, 100.0, 5.0),
        exponents=_EXPONENTS,
        default=Settings(
            problem="one-direction", width=1, learning_rate=1.0, sphere=False, alpha=40.0, d=500, noise=0.01, log=True
        ),
    ),
    "power-law": Choice(
        title="Inputs with a power law",
        words="One teacher direction, seen through the error function, and inputs whose variance falls as a power of "
        "the direction's rank. Directions of large variance are learned first; the steeper the power law, the longer "
        "the tail of the risk.",
        problem="TwoLayer",
        arguments={"teacher_width": 1, "activation": "erf"},
        rates=_steps(0.5, 10.0, 0.5),
        noises=(0.0, 0.00001, 0.0001, 0.001, 0.01, 0.1),
        alphas=_steps(10.0, 100.0, 10.0),
        default=Settings(
            problem="power-law", width=1, learning_rate=4.0, sphere=False, alpha=50.0, d=200, log=True, exponent=1.0
        ),
        exponents=_steps(0.1, 2.0, 0.1),
    ),
    "two-clusters": Choice(
        title="Two clusters",
        words="Inputs in two clusters, each with its label, and the cross-entropy. SGD lowers the risk; the accuracy "
        "is the fraction of fresh inputs that the network puts in the right class. The wider the clusters, the more "
        "they overlap, and the lower the best accuracy.",
        problem="Mixture",
        arguments={"means": [[1.0], [-1.0]], "labels": [1, 0], "activation": "erf"},
        rates=_steps(0.1, 4.0, 0.1),
        noises=(0.1, 0.15, 0.2, 0.25, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0),
        alphas=_steps(5.0, 100.0, 5.0),
        default=Settings(problem="two-clusters", width=1, learning_rate=1.0, sphere=False, alpha=20.0, noise=0.25),
        widths=(1, 2),
    ),
}
