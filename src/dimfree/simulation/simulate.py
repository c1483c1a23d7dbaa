"""The same process at finite d, run many times."""

from collections.abc import Callable
from typing import Any, Literal

from jaxtyping import Array, PRNGKeyArray
from numpy.typing import ArrayLike

from ..algorithms import OnlineAlgorithm, ReusedData
from ..errors import InvalidInput, flag, shown
from ..problems import Problem
from ..state import State
from ..trajectory import Trajectory
from .online import simulate_online
from .reused import simulate_reused


def simulate(
    problem: Problem,
    algorithm: OnlineAlgorithm | ReusedData,
    start: State | Literal["spectral"],
    d: int,
    alpha: float | ArrayLike | Array,
    *,
    runs: int,
    key: PRNGKeyArray,
    method: Literal["exact", "vectors"] | None = None,
    stop: Callable[[State], Array] | None = None,
    memory: int | None = None,
    datasets: int | None = None,
    dtype: Any = None,
    store_data: bool | None = None,
    progress: bool = False,
) -> Trajectory:
    r"""SGD in dimension d, or an algorithm on a fixed training set, many runs at once.

    Where each sample is used once, `method="exact"` simulates the State itself: its law is exactly that of SGD in
    dimension d, and a step costs the same for d = 10^9 as for d = 10^3. `method="vectors"` moves the weight vectors, at
    a cost proportional to d.

    Where data are reused ([`GradientDescent`], [`MultiPassSGD`], [`PersistentSGD`], [`Langevin`]), the training set is
    drawn once, $x_\mu \sim N(0, I_d)$ for samples_per_dimension x d samples with the noise of their labels, and used in
    every step of the weight vectors. The clock is time = learning_rate x steps, and the mean loss of the training
    samples is saved beside the State. This holds for losses of local fields with standard Gaussian inputs and a readout
    that does not move.

    Runs depend on `key` and their number only, not on how they are grouped: exact runs share the cores of a CPU, at
    least 64 on each. Diverging runs are reported in `outcome`, and the others complete.

    **Arguments:**

    - `problem`, `algorithm`: what is learned, and how.
    - `start`: the State before the first step, the same for all runs, or one for each along a leading axis. Where data
      are reused, weights have exactly these overlaps and are random otherwise; or `"spectral"`, for one student: the
      leading eigenvector of $\sum_\mu T(y_\mu) x_\mu x_\mu^\top$, of norm $\sqrt d$, with the sign of the teacher. Here
      $y_\mu = -\partial^2 \text{loss}_\mu / \partial \lambda^2$ at $\lambda = 0$ (for phase retrieval the label, up to
      a factor) and $T(y) = (y - \text{mean}|y|) / (|y| + \text{mean}|y|)$.
    - `d`: the dimension.
    - `alpha`: where to end (201 even times are saved), or the increasing times to save at, in samples per dimension or,
      where data are reused, in time; times are rounded to steps.
    - `runs`, `key`: number of runs, and the random key.
    - `progress`: whether to say what it will cost and show how far it is.

    Where each sample is used once:

    - `method`: `"exact"` if left out, or `"vectors"`.
    - `stop`: a function of the State; a run ends with the step after which it is zero or positive.
    - `memory`: bytes that the runs under way may use, 1 GiB if left out; the others wait.

    Where data are reused:

    - `datasets`: number of training sets; consecutive runs share one, which makes a run cheaper. One for each run if
      left out.
    - `dtype`: precision of inputs and weights, float64 if left out, or float32, which takes half the memory. Which runs
      find the signal does not depend on it: none of 1536 runs of phase retrieval at d = 100 until t = 100 did, on the
      same data.
    - `store_data`: whether to keep the inputs in memory, or to make them again from their key in each step; if left
      out, they are kept where they take at most half of the memory that is free.

    **Returns:** a [`Trajectory`] with a leading axis of runs.

    ??? example
        >>> import dimfree, jax
        >>> problem, start, key = dimfree.PhaseRetrieval(), dimfree.State(Q=[[1.0]], M=[[0.5]]), jax.random.key(0)
        >>> runs = dimfree.simulate(problem, dimfree.OnlineSGD(0.1), start, 1_000, 1.0, runs=2, key=key)
        >>> runs.alpha.shape, runs.risk.shape
        ((201,), (2, 201))
        >>> sgd = dimfree.PersistentSGD(0.02, samples_per_dimension=3, batch_fraction=0.5, persistence=1.0, sphere=True)
        >>> runs = dimfree.simulate(problem, sgd, start, 50, 1.0, runs=2, key=key)
        >>> runs.time.shape, runs.training_loss.shape
        ((201,), (2, 201))
    """
    fresh = {"method": method, "stop": stop, "memory": memory}
    reused = {"datasets": datasets, "dtype": dtype, "store_data": store_data}
    common: dict[str, Any] = {"runs": runs, "key": key, "progress": flag(progress, "progress")}
    if isinstance(algorithm, ReusedData):
        _refuse(fresh, "algorithms that use each sample once", algorithm)
        return simulate_reused(problem, algorithm, start, d, alpha, **common, **reused)
    _refuse(reused, "algorithms that reuse their data", algorithm)
    if isinstance(start, str):
        raise InvalidInput(
            f"start = {shown(start)} was given, which is for algorithms that reuse their data; pass "
            "dimfree.State(Q=..., M=...) or dimfree.random_state(...)."
        )
    return simulate_online(problem, algorithm, start, d, alpha, **common, **fresh)


def _refuse(options: dict[str, Any], whose: str, algorithm: Any) -> None:
    """An error for an option that belongs to the other kind of algorithm."""
    for name, value in options.items():
        if value is not None:
            raise InvalidInput(
                f"{name} = {shown(value)} was given, which is for {whose}; leave it out for {shown(algorithm)}."
            )
