"""The source's statements on the landscape: eqs. (24)-(30) and section 7.2, against derivatives of the library's risk.

Here, as in its section 7.2, weights have norm of order one: overlaps are their scalar products.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dimfree import Claim, State, hessian

from .conventions import network, source_risk

_P, _K, _N = 4, 2, 9  # where derivatives are taken in the weights themselves
_SPECTRA = ((12, 4, 2), (15, 5, 3))  # N, p, k


def claims() -> tuple[Claim, ...]:
    """Gradient and Hessian, critical points, spectra."""
    return (*_derivatives(), *_critical_points(), *_hessians(), *_spectra())


def _state(weights) -> State:
    """Overlaps of weights, the teachers being the first coordinates."""
    return State(Q=weights @ weights.T, M=weights[:, :_K])


@jax.jit
def _gradient(weights):
    return jax.grad(lambda w: source_risk(network(_P, _K), _state(w)))(weights)


@jax.jit
def _hessian(weights):
    return jax.hessian(lambda w: source_risk(network(_P, _K), _state(w)))(weights)


def _printed_gradient(W: np.ndarray) -> np.ndarray:
    """Eq. (24)."""
    Q, rho, teachers = W @ W.T, W[:, :_K], np.eye(_K, _N)
    return -4 / _P * (W + 2 / _K * rho @ teachers - (np.trace(Q) * W + 2 * Q @ W) / _P)


def _blocks(block) -> np.ndarray:
    """A matrix of (m, n) blocks, with the axes of `jax.hessian`."""
    return np.stack([np.stack([block(m, n) for n in range(_P)], axis=1) for m in range(_P)])


def _printed_hessian(W: np.ndarray) -> np.ndarray:
    """Eq. (25)."""
    Q, identity, teachers = W @ W.T, np.eye(_N), np.eye(_N, _K) @ np.eye(_K, _N)
    own = (1 - np.trace(Q) / _P) * identity + 2 / _K * teachers - 2 / _P * W.T @ W

    def block(m, n):
        pair = Q[n, m] * identity + np.outer(W[n], W[m]) + np.outer(W[m], W[n])
        return -4 / _P * (-2 / _P * pair + (m == n) * own)

    return _blocks(block)


def _derivatives() -> tuple[Claim, ...]:
    W = 0.5 * np.random.default_rng(0).normal(size=(_P, _N))
    return (
        Claim(
            where="eq. (24)",
            statement="The gradient of the risk in the weights.",
            printed=_printed_gradient(W),
            ours=np.asarray(_gradient(W)),
            tolerance=1e-12,
            remark="In the scaling of section 7.2; in that of the main text it is 1/N of this.",
        ),
        Claim(
            where="eq. (25)",
            statement="The Hessian of the risk in the weights.",
            printed=_printed_hessian(W),
            ours=np.asarray(_hessian(W)),
            tolerance=1e-12,
            remark="In the scaling of section 7.2, likewise.",
        ),
    )


def _frame(rows: int, columns: int, seed: int) -> np.ndarray:
    """Orthonormal columns."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(rows, columns)))[0]


def _directions(s: int, r: int, seed: int) -> np.ndarray:
    """s random orthonormal directions among the teachers and r orthogonal to them, as rows."""
    inside = np.concatenate([_frame(_K, s, seed).T, np.zeros((s, _N - _K))], axis=1)
    outside = np.concatenate([np.zeros((r, _K)), _frame(_N - _K, r, seed + 1).T], axis=1)
    return np.concatenate([inside, outside])


def _size(weights: np.ndarray) -> float:
    return float(np.linalg.norm(_gradient(weights)))


def _critical_points() -> tuple[Claim, ...]:
    uncorrelated = [np.sqrt(_P / (2 + r)) * _frame(_P, r, r) @ _directions(0, r, r) for r in range(1, _P + 1)]
    correlated = [
        np.sqrt(_P * (2 + _K) / (_K * (2 + s))) * _frame(_P, s, s) @ _directions(s, 0, s) for s in range(1, _K + 1)
    ]
    found, risks, expected = [], [], []
    for s in range(_K + 1):
        for r in range(_P - s + 1 if s < _K else 1):
            across = _P * (1 - s / _K) / (s + r + 2)
            norms = np.sqrt([across + _P / _K] * s + [across] * r)
            weights = (_frame(_P, s + r, s) * norms) @ _directions(s, r, r) if s + r else np.zeros((_P, _N))
            if _size(weights) < 1e-10:
                found.append((s, r))
                risks.append(float(source_risk(network(_P, _K), _state(jnp.asarray(weights)))))
                expected.append(2 * (_K - s) / _K**2 + 2 * (1 - s / _K) ** 2 / (s + r + 2))
    rank = 3
    students = np.concatenate([_directions(0, rank, 7), np.zeros((_P - rank, _N))])
    # The slope along the students, over the square root of their scale, is linear in the scale.
    low, high = (float(np.sum(_gradient(scale**0.5 * students) * students)) / scale**0.5 for scale in (0.5, 1.5))
    root = 0.5 - low / (high - low)
    listed = [(s, r) for s, r in found if s == 0 or r == 0]
    M = _frame(_P, rank, 0)
    return (
        Claim(
            where="eq. (28)",
            statement="Students of rank r orthogonal to the teachers, scaled by (p / (2 + r))^1/2: the gradient.",
            printed=np.zeros(_P),
            ours=[_size(weights) for weights in uncorrelated],
            tolerance=1e-12,
        ),
        Claim(
            where="eq. (28), the matrix M",
            statement="M, of shape (p, r), has M M^T = 1: its rank.",
            printed=_P,
            ours=int(np.linalg.matrix_rank(M @ M.T)),
            tolerance=0.0,
            correction="M^T M = 1, of rank r; the same below eq. (30).",
            corrected=round(float(np.trace(M.T @ M))),
        ),
        Claim(
            where="eq. (30)",
            statement="Students of rank s among the teachers, scaled by (p (2 + k) / (k (2 + s)))^1/2: the gradient.",
            printed=np.zeros(_K),
            ours=[_size(weights) for weights in correlated],
            tolerance=1e-12,
        ),
        Claim(
            where="eq. (30), the teachers",
            statement="M, of shape (p, s), multiplies the matrix of all teachers: number of its rows, at s = 1.",
            printed=_K,
            ours=int(np.linalg.matrix_rank(correlated[0])),
            tolerance=0.0,
            correction="An orthonormal frame of s rows within the span of the teachers.",
            corrected=_directions(1, 0, 0).shape[0],
        ),
        Claim(
            where="section 7.2.1, scale of the students",
            statement="The scale solves 1 - rank/p - 2 scale/p = 0, here at rank 3 and p = 4.",
            printed=(_P - rank) / 2,
            ours=root,
            tolerance=1e-12,
            correction="1 - scale rank/p - 2 scale/p = 0 (the solution is printed right).",
            corrected=_P / (2 + rank),
        ),
        Claim(
            where="section 4.2, classes of critical points",
            statement="Critical points are zero, orthogonal to the teachers, or among them: number of (s, r), with s "
            "directions among the teachers and r orthogonal to them, for p = 4 and k = 2.",
            printed=len(listed),
            ours=len(found),
            tolerance=0.0,
            correction="There are mixed ones: all s <= k and s + r <= p, with the risk 2 (k - s)/k^2 "
            "+ 2 (1 - s/k)^2/(s + r + 2).",
            corrected=sum(_P - s + 1 if s < _K else 1 for s in range(_K + 1)),
            remark=f"The risks are those to {np.max(np.abs(np.subtract(risks, expected))):.0e}. Section 7.2.2 has its "
            "examples only.",
        ),
    )


def _hessians() -> tuple[Claim, ...]:
    identity, teachers = np.eye(_N), np.eye(_N, _K) @ np.eye(_K, _N)
    signal = np.outer(identity[0], identity[0])
    orthogonal = np.sqrt(_P / (_P + 2)) * _directions(0, _P, 3)
    S = _frame(_P, _K, 4)
    solution = np.sqrt(_P / _K) * S @ np.eye(_K, _N)
    lengths = np.abs(_frame(_P, 1, 5)[:, 0]) * np.sqrt(_P * (2 + _K) / (3 * _K))
    aligned = np.outer(lengths, identity[0])

    def plateau_block(last):
        def block(m, n):
            pair = np.outer(orthogonal[n], orthogonal[m]) + np.outer(orthogonal[m], orthogonal[n])
            return -8 / _P * (-pair / _P + (m == n) * (teachers / _K - last(m) / _P))

        return _blocks(block)

    def solution_block(m, n):
        pair = np.outer(solution[n], solution[m]) * _K / _P
        return 8 / (_P * _K) * (S[n] @ S[m] * identity + pair + pair.T)

    def aligned_block(m, n):
        own = (_K - 1) / (3 * _K) * identity + teachers / _K - (2 + _K) / (3 * _K) * signal
        return -8 / _P * (-lengths[n] * lengths[m] / _P * (identity + 2 * signal) + (m == n) * own)

    return (
        Claim(
            where="section 7.2.2, Hessian of tabula rasa",
            statement="-(4/p) (1 + (2/k) W*^T W*) for each student.",
            printed=_blocks(lambda m, n: -4 / _P * (m == n) * (identity + 2 / _K * teachers)),
            ours=np.asarray(_hessian(np.zeros((_P, _N)))),
            tolerance=1e-12,
        ),
        Claim(
            where="section 7.2.2, Hessian of the plateau",
            statement="Its last term is that of one student, -(1/p) w_k w_k^T.",
            printed=plateau_block(lambda m: np.outer(orthogonal[m], orthogonal[m])),
            ours=np.asarray(_hessian(orthogonal)),
            tolerance=1e-12,
            correction="It is a sum over all students k.",
            corrected=plateau_block(lambda m: orthogonal.T @ orthogonal),
        ),
        Claim(
            where="section 7.2.2, Hessian of a solution",
            statement="(8/(p k)) (S S^T 1 + S S (w* w*^T + transpose)).",
            printed=_blocks(solution_block),
            ours=np.asarray(_hessian(solution)),
            tolerance=1e-12,
        ),
        Claim(
            where="section 7.2.2, Hessian of aligned students",
            statement="All students along one teacher.",
            printed=_blocks(aligned_block),
            ours=np.asarray(_hessian(aligned)),
            tolerance=1e-12,
        ),
    )


def _spectrum(N: int, p: int, k: int, state: State):
    found = hessian(network(p, k), state, N)
    return found, 2 * np.repeat(found.eigenvalues, found.multiplicities)


def _printed_spectra(N: int, p: int, k: int) -> dict[str, tuple[State, dict[float, int]]]:
    """The four points of section 7.2.2, with eigenvalues and multiplicities as printed."""
    zero = np.zeros((p, k))
    one_teacher = np.zeros((p, k))
    lengths = np.sqrt(p * (2 + k) / (3 * k)) * np.abs(_frame(p, 1, 0)[:, 0])
    one_teacher[:, 0] = lengths
    scaled = np.sqrt(p / k) * _frame(p, k, 1)
    return {
        "tabula rasa": (
            State(Q=np.zeros((p, p)), M=zero),
            {-4 / p * (1 + 2 / k): p * k, -4 / p: p * (N - k)},
        ),
        "the plateau": (
            State(Q=p / (p + 2) * np.eye(p), M=zero),
            {
                -8 / (p * k): p * k,
                8 / p: 1,
                16 / (p * (p + 2)): p * (p - 1) // 2 + p - 1,
                0.0: p * (N - k - p) + p * (p - 1) // 2,
            },
        ),
        "a solution": (
            State(Q=scaled @ scaled.T, M=scaled),
            {
                8 / (p * k): k * (N - k),
                16 / (p * k): k * (k + 1) // 2 - 1,
                8 * (2 + k) / (p * k): 1,
                0.0: (N - k) * (p - k) + k * (p - k) + k * (k - 1) // 2,
            },
        ),
        "aligned students": (
            State(Q=np.outer(lengths, lengths), M=one_teacher),
            {
                -8 * (k - 1) / (3 * p * k): (N - k) * (p - 1),
                -8 * (k + 2) / (3 * p * k): (k - 1) * (p - 1),
                8 / (p * k): N - k,
                8 * (2 + k) / (p * k): 1,
                0.0: (p - 1) + (k - 1),
            },
        ),
    }


def _spectra() -> tuple[Claim, ...]:
    printed: dict[str, list[np.ndarray]] = {}
    ours: dict[str, list[np.ndarray]] = {}
    ratios, counted, flat, split = [], [], [], []
    for N, p, k in _SPECTRA:
        for name, (state, values) in _printed_spectra(N, p, k).items():
            found, spectrum = _spectrum(N, p, k, state)
            printed.setdefault(name, []).append(np.sort(np.repeat(list(values), list(values.values()))))
            ours.setdefault(name, []).append(spectrum)
            if name == "the plateau":
                ratios.append(k / (N - k - p / 2 - 1 / 2))
                counted.append(found.negative / found.flat)
            if name == "a solution":
                flat.append((p * k - k * (k + 1) / 2, (N - k) * (p - k)))
                split.append((found.symmetric, found.accidental))
    sizes = "(N, p, k) = (12, 4, 2) and (15, 5, 3)"
    N, p, k = _SPECTRA[0]
    return (
        *(
            Claim(
                where=f"section 7.2.2, spectrum of {name}",
                statement=f"All eigenvalues with their multiplicities, {sizes}.",
                printed=np.concatenate(printed[name]),
                ours=np.concatenate(ours[name]),
                tolerance=1e-9,
            )
            for name in printed
        ),
        Claim(
            where="eq. (29)",
            statement=f"The ratio of negative to flat directions of the plateau, {sizes}.",
            printed=ratios,
            ours=counted,
            tolerance=1e-12,
        ),
        Claim(
            where="section 7.2.2, widest plateau",
            statement="The ratio grows with p up to p = N = 12: the largest width that has a plateau, k = 2.",
            printed=N,
            ours=max(width for width in range(1, N + 1) if _fits(width, k, N)),
            tolerance=0.0,
            correction="p orthogonal students orthogonal to k teachers need p + k <= N.",
            corrected=N - k,
        ),
        Claim(
            where="section 7.2.3",
            statement="Flat directions at a solution: p k - k(k + 1)/2 along the solutions, (N - k)(p - k) not.",
            printed=flat,
            ours=split,
            tolerance=0.0,
        ),
    )


def _fits(p: int, k: int, N: int) -> bool:
    """Whether the overlaps of the plateau are those of vectors in N dimensions: by their rank."""
    overlaps = State(Q=p / (p + 2) * np.eye(p), M=np.zeros((p, k))).covariance
    return bool(np.linalg.matrix_rank(overlaps) <= N)
