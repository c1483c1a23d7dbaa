r"""The source's conventions in terms of ours.

Its N is our d, its $\alpha$ = M/N `samples_per_dimension`, its $\eta$ `learning_rate`, $\ell$ `batch_fraction`, $\tau$
`persistence`, T `temperature`, $\lambda$ `ridge`; its magnetization m is M and its q is Q, both of one number. Its time
is ours, learning_rate x steps, drawn as $t + \eta$ on logarithmic axes. Its loss (4) is half of that of
[`PhaseRetrieval`].

Its vanilla SGD draws batches with replacement. Ours, [`MultiPassSGD`], takes each sample with probability $\ell$, which
is eq. (6) and has less noise: see the claim on eq. (6).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from dimfree import GradientDescent, LocalFields, MultiPassSGD, Outcome, PersistentSGD, State, simulate
from dimfree.algorithms import ReusedData

from ..drawing_style import BLUE, GREEN, RED

CLOCK = r"$t + \eta$"
# What most figures have: samples per dimension, overlap at the start, share of the samples in a batch, persistence.
SAMPLES, START, BATCH_FRACTION, PERSISTENCE = 3.0, 0.2, 0.5, 1.0
SETTING = f"M/d = {SAMPLES:g}, $m_0$ = {START:g}"
RECOVERED = 1e-7  # training loss below which a run has found the signal, as in the source
AT_SIGNAL = 0.99  # overlap of a run that has
_LONG = 1e13  # flop, minutes: it says what it will cost and shows how far it is
COLOURS = {"GD": RED, "SGD": GREEN, "persistent SGD": BLUE}
LINES = {"GD": "-", "SGD": ":", "persistent SGD": "--"}


def _loss(student, teacher, noise, readout):
    return (student[0] ** 2 - teacher[0] ** 2) ** 2 / 4


PHASE = LocalFields(_loss, width=1, teacher_width=1)  # eq. (4)


def warm(overlap: ArrayLike, Q: ArrayLike = 1.0) -> State:
    """The start (11), with exactly this overlap; one for each run if it is a vector."""
    M = np.asarray(overlap, float)[..., None, None]
    return State(Q=np.broadcast_to(np.asarray(Q, float)[..., None, None], M.shape), M=M)


def algorithms(
    rate: float, *, persistence: float = PERSISTENCE, sphere: bool = True, ridge: float = 0.0
) -> dict[str, ReusedData]:
    """The three that figures 2, 3 and B.1 to B.3 compare, by their names."""
    return {
        "GD": GradientDescent(rate, SAMPLES, sphere, ridge),
        "SGD": MultiPassSGD(rate, SAMPLES, BATCH_FRACTION, sphere, ridge),
        "persistent SGD": PersistentSGD(rate, SAMPLES, BATCH_FRACTION, persistence, sphere, ridge),
    }


@dataclasses.dataclass(frozen=True)
class Plan:
    """How large a simulation is: dimension, runs on how many datasets, learning rate and end of time."""

    d: int
    runs: int
    datasets: int
    rate: float
    end: float

    def times(self, number: int = 60) -> np.ndarray:
        """Times to save, from 0 on and then even in their logarithm, each a whole number of steps."""
        steps = np.unique(np.round(np.geomspace(1, self.end / self.rate, number)))
        return np.concatenate([[0.0], steps]) * self.rate

    def described(self) -> str:
        """For the title of a picture."""
        return f"d = {self.d:,}, {self.runs} runs on {self.datasets} datasets, learning rate {self.rate:g}"


@dataclasses.dataclass(frozen=True)
class Measured:
    """Overlap, Q and training loss of runs over time, shapes `(runs, times)`; those that diverged are left out."""

    time: np.ndarray
    m: np.ndarray
    q: np.ndarray
    loss: np.ndarray
    diverged: int

    @property
    def recovered(self) -> np.ndarray:
        """Which runs have found the signal at the end."""
        return self.loss[:, -1] < RECOVERED


def measure(plan: Plan, algorithm: ReusedData, start: State, *, seed: int, times: np.ndarray | None = None) -> Measured:
    """Runs of an algorithm in single precision; those of the same seed and plan share data and starts."""
    times = plan.times() if times is None else times
    steps = times[-1] / float(algorithm.learning_rate)
    runs = simulate(
        PHASE,
        algorithm,
        start,
        plan.d,
        times,
        runs=plan.runs,
        datasets=plan.datasets,
        key=jax.random.key(seed),
        dtype=jnp.float32,
        progress=bool(4 * plan.runs * SAMPLES * plan.d**2 * steps > _LONG),
    )
    kept = np.asarray(runs.outcome) == Outcome.COMPLETED
    assert runs.training_loss is not None
    return Measured(
        time=np.asarray(runs.time),
        m=np.asarray(runs.state.M)[kept, :, 0, 0],
        q=np.asarray(runs.state.Q)[kept, :, 0, 0],
        loss=np.asarray(runs.training_loss)[kept],
        diverged=int(np.sum(~kept)),
    )


def standard_error(values: np.ndarray, datasets: int) -> np.ndarray:
    """Of the mean over runs, where those that share a dataset may be alike: from the means of the datasets."""
    groups = np.array([np.mean(each, axis=0) for each in np.array_split(values, datasets)])
    return np.asarray(np.std(groups, axis=0, ddof=1) / datasets**0.5)


def difference(one: np.ndarray, other: np.ndarray, datasets: int) -> tuple[float, float]:
    """By how much the mean over runs exceeds that of others on the same data and starts, with its standard error."""
    if one.shape == other.shape:
        error = standard_error(one - other, datasets)
    else:  # some diverged
        error = np.hypot(standard_error(one, datasets), standard_error(other, datasets))
    return float(one.mean() - other.mean()), float(error)


def mean_squared_error(q: ArrayLike, m: ArrayLike, q0: ArrayLike = 1.0) -> np.ndarray:
    """Eq. (B.8), as printed: of the absolute value of a fresh teacher field."""
    q, m = np.asarray(q, float), np.asarray(m, float)
    rest = np.sqrt(np.maximum(q * np.asarray(q0) - m**2, 0.0))
    return np.asarray(q + np.asarray(q0) - 4 / np.pi * (rest + m * np.arctan2(m, rest)))
