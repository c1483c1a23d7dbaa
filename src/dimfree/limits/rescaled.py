r"""The fluctuations of order $d^{-1/2}$ as a limit of their own: linear diffusions at a fixed point, and at M = 0."""

import dataclasses
import math

import equinox as eqx
import numpy as np
import scipy.linalg
from jaxtyping import Float

from ..errors import InvalidInput, require
from ..problems import Problem
from ..state import State
from ..trajectory import check_start
from .diffusion import increment_covariance, value_and_jacobian
from .drift import MeanLimit, check_mean_limit

_AT_REST = 1e-7  # drift that counts as none, in units of the sizes of drift matrix and State
_ZERO = 1e-9  # eigenvalues below this fraction of the largest are zero


@dataclasses.dataclass(frozen=True)
class RescaledLimit:
    r"""A linear diffusion: what remains of the State, magnified by $d^{1/2}$, as $d \to \infty$.

    $$ d\tilde u = J \tilde u \, d\alpha + \Sigma^{1/2} \, dB_\alpha $$

    Use [`rescaled`] or [`rescaled_overlaps`] to make one. On the clock t = learning_rate * alpha divide `drift` and
    `diffusion` by the learning rate.

    **Attributes:**

    - `drift`: J, shape (n, n).
    - `diffusion`: $\Sigma$, the covariance that is gained per unit of alpha, shape (n, n). It may be singular.
    - `labels`: the names of the coordinates, such as `M[0,0]`.
    """

    drift: Float[np.ndarray, "n n"]
    diffusion: Float[np.ndarray, "n n"]
    labels: tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The publications that it comes from, for `dimfree.cite`."""
        return ("benarous2022",)

    @property
    def rank(self) -> int:
        """The rank of the diffusion matrix: in how many directions there is noise."""
        values = np.linalg.eigvalsh(self.diffusion)
        return int(np.sum(values > _ZERO * values.max(initial=0.0)))

    @property
    def noiseless(self) -> Float[np.ndarray, "m n"]:
        """Orthonormal directions without noise, one in each row."""
        return np.linalg.eigh(self.diffusion)[1][:, : len(self.labels) - self.rank].T

    @property
    def reached(self) -> Float[np.ndarray, "n m"]:
        """An orthonormal basis of the directions that the noise reaches, itself or carried by the drift."""
        basis = np.linalg.eigh(self.diffusion)[1][:, len(self.labels) - self.rank :]
        while True:
            carried = np.concatenate([basis, self.drift @ basis / np.linalg.norm(self.drift)], axis=1)
            vectors, values, _ = np.linalg.svd(carried, full_matrices=False)
            larger = vectors[:, values > _ZERO]
            if larger.shape[1] == basis.shape[1]:
                return basis
            basis = larger

    @property
    def growth(self) -> float:
        """The largest growth rate of the drift."""
        return float(np.linalg.eigvals(self.drift).real.max())

    @property
    def stationary_covariance(self) -> Float[np.ndarray, "n n"]:
        r"""The covariance C of the stationary law: $J C + C J^\top + \Sigma = 0$; that of the State is C / d.

        It is that of fluctuations which the noise makes: directions that it does not reach, such as those along a
        family of fixed points may be, stay as they were at the start and count as zero.
        """
        basis = self.reached
        drift = basis.T @ self.drift @ basis
        rates = np.linalg.eigvals(drift)
        if not rates.real.max(initial=-np.inf) < -_ZERO * np.abs(rates).max(initial=0.0):
            raise InvalidInput(
                "There is no stationary law: in directions that the noise reaches, the drift has an eigenvalue with "
                f"real part {rates.real.max():.3g}."
            )
        covariance = scipy.linalg.solve_continuous_lyapunov(drift, -basis.T @ self.diffusion @ basis)
        return basis @ covariance @ basis.T

    def covariance(self, alpha: float, start: Float[np.ndarray, "n n"] | None = None) -> Float[np.ndarray, "n n"]:
        """The covariance at a time.

        **Arguments:**

        - `alpha`: the time.
        - `start`: the covariance at alpha = 0; zero if left out.

        **Returns:** the covariance of the coordinates named in `labels`.
        """
        n = len(self.labels)
        doublings = math.ceil(math.log2(max(alpha * np.linalg.norm(self.drift, 1), 1.0)))
        # Van Loan: the integral of the noise is a block of one matrix exponential. Another of its blocks grows where
        # the drift decays, so it is taken of a short time, which is then doubled.
        blocks = np.block([[-self.drift, self.diffusion], [np.zeros((n, n)), self.drift.T]])
        exponential = scipy.linalg.expm(alpha / 2**doublings * blocks)
        moved = exponential[n:, n:].T
        gained = moved @ exponential[:n, n:]
        for _ in range(doublings):
            gained = gained + moved @ gained @ moved.T
            moved = moved @ moved
        return gained if start is None else moved @ start @ moved.T + gained

    def of(self, *labels: str) -> "RescaledLimit":
        """The diffusion of some of the coordinates, where they move without the others.

        ??? example
            >>> import dimfree
            >>> matrix = dimfree.ode(dimfree.SpikedTensor(order=2, snr=0.5), dimfree.OnlineSGD(1.0))
            >>> at = dimfree.State(Q=[[1.0]], M=[[0.0]])
            >>> dimfree.rescaled(matrix, at).of("M[0,0]").stationary_covariance.round(6)
            array([[2.]])
        """
        unknown = set(labels) - set(self.labels)
        if unknown:
            raise InvalidInput(f"There is no coordinate {sorted(unknown)[0]!r}; there are {', '.join(self.labels)}.")
        chosen = [self.labels.index(label) for label in labels]
        others = [i for i in range(len(self.labels)) if i not in chosen]
        require(
            np.abs(self.drift[np.ix_(chosen, others)]) <= 1e-6 * np.abs(self.drift).max(),
            f"{', '.join(labels)} do not move without the other coordinates.",
        )
        return RescaledLimit(self.drift[np.ix_(chosen, chosen)], self.diffusion[np.ix_(chosen, chosen)], labels)

    def __str__(self) -> str:
        n = len(self.labels)
        lines = [f"Linear diffusion of {n} coordinates, magnified by d^1/2: {', '.join(self.labels)}"]
        lines.append(f"  largest growth rate {self.growth:.6g} per unit of alpha")
        lines.append(f"  diffusion matrix of rank {self.rank} of {n}" + (": degenerate" if self.rank < n else ""))
        try:
            shown = ", ".join(f"{value:.6g}" for value in np.diag(self.stationary_covariance))
            lines.append(f"  stationary variances {shown}")
        except InvalidInput:
            lines.append("  no stationary law")
        return "\n".join(lines)

    __repr__ = __str__


def _checked(problem: Problem, at: State) -> State:
    """The State that a limit is at, or an error in terms of `at`."""
    try:
        return check_start(problem, at, trained=False)
    except InvalidInput as refusal:
        raise InvalidInput(f"at is not a State of this problem. {refusal}") from None


def rescaled(limit: MeanLimit, at: State) -> RescaledLimit:
    r"""The diffusion of $\tilde u = d^{1/2} (u - u_*)$ around a fixed point of the ODE.

    J is the Jacobian of the drift there, $\Sigma$ the covariance of the whole increment of a sample, second-order term
    included. At a point where the drift jumps, coordinates that are exactly zero are linearised inside the surface.

    **Arguments:**

    - `limit`: from [`ode`].
    - `at`: the fixed point, such as the `state` of one of [`fixed_points`].

    **Returns:** a [`RescaledLimit`].

    Ben Arous et al. 2022, Propositions 3.3, 4.3 and 5.1. In 4.3 and 5.1 the sign of the second term of the drift is
    wrong, and in 5.1 the covariances between overlaps of neurons of different classes are missing.
    """
    check_mean_limit(limit)
    at = _checked(limit.problem, at)
    drift, jacobian, diffusion = (np.asarray(part) for part in _linearised(limit, at))
    scale = np.abs(jacobian).max() * (1 + np.abs(np.asarray(limit.coordinates.pack(at))).max())
    if not np.abs(drift).max() <= _AT_REST * scale:
        raise InvalidInput(
            f"This is no fixed point: the drift there is {np.abs(drift).max():.3g}. Take one from dimfree.fixed_points."
        )
    return RescaledLimit(jacobian, diffusion, limit.coordinates.labels)


def rescaled_overlaps(limit: MeanLimit, at: State) -> RescaledLimit:
    r"""The diffusion of $\tilde M = d^{1/2} M$ where the overlaps with the teachers vanish, as after a random start.

    $$ d\tilde M = \partial_M h_M(0, \cdot) \, \tilde M \, d\alpha + \Sigma_{MM}(0, \cdot)^{1/2} \, dB_\alpha , $$

    while the rest follows its ODE, on which M = 0 has no effect. It holds where M = 0 is invariant, which is checked,
    and while M is small: until the overlaps are of order one, after a time of order log d. With students of norm
    $\sqrt d$ in random directions $\tilde M$ starts from standard normal numbers.

    **Arguments:**

    - `limit`: from [`ode`].
    - `at`: a State with M = 0; the coefficients are those there, and change with the rest of the State.

    **Returns:** a [`RescaledLimit`].

    Ben Arous et al. 2022, Proposition 3.3.
    """
    check_mean_limit(limit)
    at = _checked(limit.problem, at)
    require(np.asarray(at.M) == 0, "The overlaps M are not zero; give a State with M = 0.")
    drift, jacobian, diffusion = (np.asarray(part) for part in _linearised(limit, at))
    labels = tuple(label for label in limit.coordinates.labels if label.startswith("M"))
    chosen = [limit.coordinates.labels.index(label) for label in labels]
    others = [i for i in range(len(drift)) if i not in chosen]
    scale = np.abs(jacobian).max()
    if not (
        np.abs(drift[chosen]).max() <= _AT_REST * scale
        and np.abs(jacobian[np.ix_(chosen, others)]).max(initial=0.0) <= _AT_REST * scale
    ):
        raise InvalidInput(
            f"M = 0 is not invariant: overlaps drift away from it at rate {np.abs(drift[chosen]).max():.3g}, whatever "
            "d is. The ODE describes them; use dimfree.solve."
        )
    return RescaledLimit(jacobian[np.ix_(chosen, chosen)], diffusion[np.ix_(chosen, chosen)], labels)


@eqx.filter_jit
def _linearised(limit: MeanLimit, at: State):
    """Drift, its Jacobian, and the diffusion matrix per unit of alpha."""
    drift, jacobian = value_and_jacobian(lambda v: limit.vector_field(0.0, v, at), limit.coordinates.pack(at))
    covariance = increment_covariance(limit, 0.0, at) / limit.algorithm.batch_size**2
    return drift, jacobian, covariance
