"""Discrete symmetries of a drift: renamings and sign changes, found by trying them."""

import itertools
from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..errors import InvalidInput
from ..limits import MeanLimit
from ..state import State

_LARGEST = 10_000  # symmetries that are listed one by one
_RELATIVE_TOLERANCE = 1e-8


class SymmetryGroup:
    """Signed permutations of the coordinates of a State that the drift commutes with.

    **Attributes:**

    - `index`, `sign`: symmetry g takes coordinates x to `sign[g] * x[index[g]]`, shape (symmetries, n); the first one
      leaves everything where it is.
    """

    index: Int[np.ndarray, "g n"]
    sign: Int[np.ndarray, "g n"]

    def __init__(self, codes: Int[np.ndarray, "g n"]):
        self.index, self.sign = np.abs(codes) - 1, np.sign(codes)
        self._number = {code.tobytes(): number for number, code in enumerate(codes)}

    def __len__(self) -> int:
        return len(self.index)

    def images(self, points: Float[np.ndarray, "r n"]) -> Float[np.ndarray, "r g n"]:
        """All that the symmetries make of each point."""
        return self.sign * points[:, self.index]

    def after(self, other: int) -> Int[np.ndarray, " g"]:
        """For each symmetry, the number of the one that it is after symmetry `other`."""
        codes = self.sign * (self.sign[other] * (self.index[other] + 1))[self.index]
        return np.array([self._number[code.tobytes()] for code in codes])


def find_symmetry_group(
    limit: MeanLimit,
    like: State,
    drift: Callable[[Float[np.ndarray, "r n"]], Float[np.ndarray, "r n"]],
    trials: Float[np.ndarray, "t n"],
) -> SymmetryGroup:
    r"""The discrete symmetries of a drift: those of a list of candidates with $f(g x) = g f(x)$ at random points.

    Candidates are: exchanging two students together with their readouts; changing the sign of a student, with or
    without that of its readout; and renaming teachers and changing their signs, alone or along with the sign of the
    whole readout or of all students. All that follow from these are symmetries too.

    **Arguments:**

    - `limit`, `like`: the ODE, and a State to take what does not move from.
    - `drift`: the drift on coordinates.
    - `trials`: coordinates of random States.
    """
    coordinates = limit.coordinates
    at_trials = drift(trials)
    error = max(float(limit.expectation_error(coordinates.unpack(jnp.asarray(trial), like))) for trial in trials)
    tolerance = _RELATIVE_TOLERANCE * np.abs(at_trials).max() + 10 * error

    # What an action makes of numbered coordinates says where each of them goes, and with which sign.
    counted = coordinates.unpack(jnp.arange(1.0, coordinates.size + 1), like)
    parts = tuple(None if part is None else np.asarray(part) for part in (counted.Q, counted.M, counted.readout))
    Q, M, readout = zip(*(action(*parts) for action in _candidates(limit, np.asarray(like.P))), strict=True)
    acted = State(Q=np.stack(Q), M=np.stack(M), readout=None if readout[0] is None else np.stack(readout))
    codes = np.unique(np.asarray(coordinates.pack(acted)).round().astype(np.int64), axis=0)
    candidates = SymmetryGroup(codes)
    moved = drift(candidates.images(trials).reshape(-1, coordinates.size)).reshape(*trials.shape[:1], len(codes), -1)
    commutes = np.abs(moved - candidates.images(at_trials)).max(axis=(0, 2)) <= tolerance
    return SymmetryGroup(_generated(codes[commutes], coordinates.size))


def _candidates(limit: MeanLimit, P: np.ndarray) -> Iterator:
    """Actions on Q, M and readout."""
    p, k = limit.problem.width, limit.problem.teacher_width
    for i, j in itertools.combinations(range(p), 2):
        order = np.arange(p)
        order[[i, j]] = j, i
        yield _action(order=order)
    for i, readout_sign in itertools.product(range(p), (1, -1)):
        flip = np.where(np.arange(p) == i, -1, 1)
        yield _action(signs=flip, readout_signs=flip if readout_sign < 0 else np.ones(p, int))
    for teachers in _signed_permutations(k):
        if np.allclose(teachers @ P @ teachers.T, P):
            for signs, readout_signs in itertools.product((1, -1), repeat=2):
                yield _action(
                    signs=np.full(p, signs), readout_signs=np.full(p, readout_signs), teachers=np.asarray(teachers)
                )


def _signed_permutations(k: int) -> Iterator[np.ndarray]:
    """All signed permutation matrices, or, for many teachers, those that generate them."""
    if k <= 3:
        for order, signs in itertools.product(itertools.permutations(range(k)), itertools.product((1, -1), repeat=k)):
            yield np.diag(signs) @ np.eye(k, dtype=int)[list(order)]
        return
    for a, b in itertools.combinations(range(k), 2):
        order = np.arange(k)
        order[[a, b]] = b, a
        yield np.eye(k, dtype=int)[order]
    for a in range(k):
        yield np.diag(np.where(np.arange(k) == a, -1, 1))


def _action(order=None, signs=None, readout_signs=None, teachers=None):
    def act(Q, M, readout):
        p, k = M.shape
        o = np.arange(p) if order is None else order
        s = np.ones(p, int) if signs is None else signs
        r = np.ones(p, int) if readout_signs is None else readout_signs
        t = np.eye(k, dtype=int) if teachers is None else teachers
        if readout is not None and readout.shape[-1] % p == 0:  # one entry for each student, or for each and output
            readout = (r * readout.reshape(-1, p)[:, o]).reshape(-1)
        return np.outer(s, s) * Q[o][:, o], s[:, None] * M[o] @ t.T, readout

    return act


def _generated(generators: Int[np.ndarray, "m n"], n: int) -> Int[np.ndarray, "g n"]:
    """The group that signed permutations generate, the identity first."""
    identity = np.arange(1, n + 1)
    found = {identity.tobytes(): identity}
    front = [identity]
    while front:
        made = []
        for element, generator in itertools.product(front, generators):
            product = np.sign(generator) * element[np.abs(generator) - 1]
            if product.tobytes() not in found:
                found[product.tobytes()] = product
                made.append(product)
        if len(found) > _LARGEST:
            raise InvalidInput(
                f"This problem has more than {_LARGEST} symmetries (renamings of neurons, changes of sign); its fixed "
                "points cannot be listed one by one. Take fewer neurons."
            )
        front = made
    return np.stack(list(found.values()))
