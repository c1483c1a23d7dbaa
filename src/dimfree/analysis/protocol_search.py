"""The search for the best protocol: constants first, then schedules from several begins."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import optimize

from ..errors import InvalidInput
from .controls import BATCH, Pair, present, with_batch
from .protocol_plans import Plan, means_of, with_slopes

_SCANNED = 24  # constants that are tried before the lowest of each basin is refined
_BASINS = 3  # of which so many are
_COARSE = 8  # knots that several searches begin with, before the best goes on with more, and with all
_KEPT = 1e-5  # relative part of a bound that SLSQP may be beyond it
_FAR = 1e6  # the objective, over that of the best constants, where a run does not end


class Found(NamedTuple):
    """What a search ended with.

    **Attributes:**

    - `x`: coordinates of the controls; `pair`: the problem and the algorithm with them, the batch a whole number.
    - `objective`: there; `bounded`: what is bounded; `kept`: whether all bounds are; `residual`: see `BestProtocol`.
    - `searches`: the objective that each search reached, the lowest first.
    """

    x: Float[np.ndarray, " n"]
    pair: Pair
    objective: float
    bounded: list[float]
    kept: bool
    residual: float
    searches: tuple[float, ...]


class Search:
    """Searches of a plan, which count their solves."""

    def __init__(self, plan: Plan):
        self.plan, self.solves, self.scale = plan, 0, 1.0
        self.known: dict[bytes, tuple] = {}
        self.lows, self.highs = (np.array([limit[side] for limit in plan.limits]) for side in (1, 2))

    def at(self, x: Float[np.ndarray, " n"]) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        """The objective over `scale` and its slope, and what is bounded with theirs; far up where a run fails."""
        name = x.tobytes()
        if name not in self.known:
            self.solves += 1
            found, slopes = (np.asarray(each) for each in with_slopes(self.plan, jnp.asarray(x)))
            means, of_means = np.zeros(0), np.zeros((0, len(x)))
            if len(self.plan.limits) > len(self.plan.bounded):
                means, of_means = (np.asarray(each) for each in means_of(self.plan, jnp.asarray(x)))
            if not (np.isfinite(found).all() and np.isfinite(slopes).all()):
                found, slopes = np.full_like(found, np.inf), np.zeros_like(slopes)
            self.known = dict(list(self.known.items())[-8:]) | {
                name: (found[0], slopes[0], np.append(means, found[1:]), np.concatenate([of_means, slopes[1:]]))
            }
        value, slope, bounded, of_bounded = self.known[name]
        if not np.isfinite(value):
            return _FAR, slope, np.nan_to_num(bounded, posinf=_FAR), of_bounded
        return value / self.scale, slope / self.scale, bounded, of_bounded

    def constants(self, judge: Callable[[Pair], float] | None = None) -> tuple[Float[np.ndarray, " numbers"], Found]:
        """The best numbers that do not change: the lowest basins of a scan, each made better; also as one for each.

        On a plateau the mean over few starts can prefer a basin that the mean over many does not: `judge` says which
        of the refined ones is best.
        """
        basis = _constants(self.plan)
        number = basis.shape[1]
        tried = (np.arange(_SCANNED) + 0.5)[:, None] / _SCANNED if number == 1 else _scattered(number)
        given = self.given()
        if given is not None:
            tried = np.concatenate([given[None], tried])
        values = np.array([self.at(basis @ y)[0] for y in tried])
        if not (values < _FAR).any():
            raise InvalidInput(
                "No run reaches its end with any of the constants tried: the bounds allow only learning rates that "
                "are too large; take lower ones."
            )
        values = np.array([self._penalised(basis @ y) for y in tried])
        self._scale_by(basis @ tried[np.argmin(values)])
        refined = [self._minimised(tried[place], basis, 60, 1e-13) for place in _basins(tried, values)]
        if judge is None:
            lowest, y = min(refined, key=lambda each: each[0])
        else:
            kept = [each for each in refined if each[0] < _FAR / 2 * self.scale] or refined
            lowest, y = min(kept, key=lambda each: judge(self._whole_batch(basis @ each[1])[1]))
        self._scale_by(basis @ y)
        return y, self._found(basis, y, (lowest,))

    def schedules(self, constants: Found, searches: int) -> Found:
        """The best schedules, from so many begins."""
        plan, random, coarse = self.plan, np.random.default_rng(0), _interpolation(self.plan, _COARSE)
        flat = np.linalg.lstsq(coarse, constants.x, rcond=None)[0]
        found = []
        for number in range(searches):
            begin = flat if number == 0 else _shaped(plan, flat, number, random)
            found.append(self._minimised(np.clip(begin, 0.0, 1.0), coarse, 100, 1e-6))
        found.sort(key=lambda each: each[0])
        values, basis, y = [value for value, _ in found], coarse, found[0][1]
        for knots, steps, least in ((4 * _COARSE, 100, 1e-7), (plan.size, 400, 1e-11)):
            finer = _interpolation(plan, knots)
            begin = np.clip(np.linalg.lstsq(finer, basis @ y, rcond=None)[0], 0.0, 1.0)
            basis = finer
            values[0], y = self._minimised(begin, basis, steps, least)
        return self._found(basis, y, tuple(values))

    def given(self) -> Float[np.ndarray, " numbers"] | None:
        """The coordinates of what is in the problem and the algorithm, one for each number; None for schedules."""
        parts = [present(Pair(self.plan.problem, self.plan.algorithm), control) for control in self.plan.controls]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        rows = zip(self.plan.controls, known, strict=True)
        return np.concatenate([np.reshape(part, (control.rows, control.knots))[:, 0] for control, part in rows])

    def _minimised(self, begin: np.ndarray, basis: np.ndarray, most: int, least: float) -> tuple[float, np.ndarray]:
        """The lowest objective found, among x = basis @ y with y between 0 and 1, from y = begin.

        **Arguments:**

        - `most`: steps; `least`: relative gain of a step after which another is worth while.
        """
        bounds = [(0.0, 1.0)] * len(begin)

        def value(y):
            found, slope, _, _ = self.at(basis @ y)
            return found, basis.T @ slope

        if not self.plan.limits:
            options = {"maxiter": most, "maxfun": 2 * most, "ftol": least, "gtol": 1e-9, "maxcor": 30}
            found = optimize.minimize(value, begin, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
        else:
            sides = [
                {
                    "type": "ineq",
                    "fun": lambda y, sign=sign, edge=edge: sign * (self.at(basis @ y)[2] - edge)[np.isfinite(edge)],
                    "jac": lambda y, sign=sign, edge=edge: sign * (self.at(basis @ y)[3] @ basis)[np.isfinite(edge)],
                }
                for sign, edge in ((1.0, self.lows), (-1.0, self.highs))
                if np.isfinite(edge).any()
            ]
            options = {"maxiter": most, "ftol": least}
            found = optimize.minimize(
                value, begin, jac=True, bounds=bounds, constraints=sides, method="SLSQP", options=options
            )
        y = np.clip(found.x, 0.0, 1.0)
        return self._penalised(basis @ y) * self.scale, y

    def _scale_by(self, x: np.ndarray) -> None:
        self.scale = abs(float(self.at(x)[0])) * self.scale or 1.0

    def _beyond(self, x: np.ndarray) -> float:
        """By how much bounds are not kept, relative to their size."""
        bounded = self.at(x)[2]
        beyond = np.maximum(self.lows - bounded, 0.0) + np.maximum(bounded - self.highs, 0.0)
        return float(np.sum(beyond / (1 + np.abs(bounded))))

    def _penalised(self, x: np.ndarray) -> float:
        """The objective over `scale`, far up where a bound is not kept."""
        beyond = self._beyond(x)
        return float(self.at(x)[0]) + (0.0 if beyond <= _KEPT else _FAR / 2 * (1 + beyond))

    def _found(self, basis: np.ndarray, y: np.ndarray, searches: tuple[float, ...]) -> Found:
        x, pair = self._whole_batch(basis @ y)
        value, _, bounded, _ = self.at(x)
        kept, residual = self._beyond(x) <= _KEPT, self._residual(basis, y)
        return Found(x, pair, float(value) * self.scale, bounded.tolist(), kept, residual, searches)

    def _whole_batch(self, x: np.ndarray) -> tuple[np.ndarray, Pair]:
        """The better of the whole numbers beside a real batch, if one is searched."""
        names = [control.name for control in self.plan.controls]
        if BATCH not in names:
            return x, self.plan.put(jnp.asarray(x))
        place = names.index(BATCH)
        offset, control = sum(each.size for each in self.plan.controls[:place]), self.plan.controls[place]
        real = float(control.values(jnp.asarray(x[offset : offset + 1]))[0, 0])
        tried = []
        for batch in sorted({int(np.floor(real)), int(np.ceil(real))}):
            rounded = x.copy()
            rounded[offset] = control.coordinates(float(batch))[0]
            tried.append((self._penalised(rounded), batch, rounded))
        _, batch, rounded = min(tried, key=lambda each: each[:2])
        return rounded, whole(self.plan.put(jnp.asarray(rounded)), batch)

    def _residual(self, basis: np.ndarray, y: np.ndarray) -> float:
        """The first-order gain of moving by the whole range wherever no bound blocks, relative to the objective."""
        value, slope, bounded, of_bounded = self.at(basis @ y)
        slope, at_low, at_high = basis.T @ slope, y <= 1e-6, y >= 1 - 1e-6
        scale = 1e-5 * (1 + np.abs(bounded))
        low, high = bounded < self.lows + scale, bounded > self.highs - scale
        # What is bounded takes its part, with the multipliers that leave least of the gains: a linear program.
        normals, each = np.concatenate([of_bounded[low], -of_bounded[high]]) @ basis, np.eye(len(y))
        upward = np.concatenate([normals.T, -each], axis=1)[~at_high]
        downward = np.concatenate([-normals.T, -each], axis=1)[~at_low]
        matrix, sides = np.concatenate([upward, downward]), np.concatenate([slope[~at_high], -slope[~at_low]])
        costs = np.concatenate([np.zeros(len(normals)), np.ones(len(y))])
        found = optimize.linprog(costs, A_ub=matrix, b_ub=sides, method="highs")
        return float(found.fun / (abs(value) or 1.0)) if found.success else np.nan


def whole(pair: Pair, batch: int) -> Pair:
    """With a whole number in the place of a real batch."""
    beside: Any = pair.algorithm
    return Pair(pair.problem, with_batch(beside.algorithm, batch))


def _constants(plan: Plan) -> Float[np.ndarray, "n rows"]:
    """Coordinates of all knots from one for each number."""
    return _blocks([np.ones((control.knots, 1)) for control in plan.controls for _ in range(control.rows)])


def _interpolation(plan: Plan, most: int) -> Float[np.ndarray, "n fewer"]:
    """Coordinates of all knots from those of at most so many of each schedule, linear between them."""
    blocks = []
    for control in plan.controls:
        fewer = min(control.knots, most)
        places = np.linspace(0.0, fewer - 1, control.knots)
        block = np.stack([np.interp(places, np.arange(fewer), row) for row in np.eye(fewer)], axis=1)
        blocks += [block] * control.rows
    return _blocks(blocks)


def _blocks(blocks: list[np.ndarray]) -> np.ndarray:
    whole = np.zeros(np.sum([block.shape for block in blocks], axis=0))
    row = column = 0
    for block in blocks:
        whole[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return whole


def _shaped(plan: Plan, flat: np.ndarray, number: int, random: np.random.Generator) -> np.ndarray:
    """Where a further search begins: the second with constants that fall at the end, others anywhere."""
    parts, place = [], 0
    for control in plan.controls:
        knots = min(control.knots, _COARSE)
        for _ in range(control.rows):
            part = flat[place : place + knots]
            if number == 1 and knots > 1:
                part = part * np.linspace(1.0, 0.0, knots) ** 0.5
            elif number > 1:
                part = part + random.normal(0.0, 0.25, knots)
            parts.append(part)
            place += knots
    return np.concatenate(parts)


def _basins(points: Float[np.ndarray, "number dimensions"], values: Float[np.ndarray, " number"]) -> np.ndarray:
    """The places of the points that are lower than those around them, the lowest first."""
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    around = np.argsort(distances, axis=1, kind="stable")[:, 1 : 2 * points.shape[1] + 1]
    low = np.flatnonzero(values <= values[around].min(axis=1))
    return low[np.argsort(values[low], kind="stable")][:_BASINS]


def _scattered(dimensions: int) -> Float[np.ndarray, "number dimensions"]:
    """Points in the cube that are spread evenly in each dimension."""
    random, number = np.random.default_rng(1), _SCANNED + 8 * dimensions
    return np.stack([random.permutation(number) + 0.5 for _ in range(dimensions)], axis=1) / number
