"""Figures B.1 and B.2: a ridge in place of the sphere."""

import dataclasses

import numpy as np

from dimfree import Claim, Reproduction
from dimfree.algorithms import ReusedData
from dimfree.papers import Size

from ..comparing import sobol_normals
from ..drawing_style import DARK, GREY, in_style, panels
from .conventions import (
    BATCH_FRACTION,
    COLOURS,
    PERSISTENCE,
    SETTING,
    START,
    Measured,
    Plan,
    algorithms,
    difference,
    mean_squared_error,
    measure,
    standard_error,
    warm,
)
from .drawing import above_floor, caption, curve, loss_inset, over_time

_PLAN = {"quick": Plan(80, 48, 12, 0.01, 50.0), "full": Plan(500, 64, 16, 0.01, 200.0)}
_AT_REST = dataclasses.replace(_PLAN["full"], end=1_000.0)  # at t = 200 persistent SGD at low ridges still improves
_SEED = 15
_RIDGES = (0.0, 0.1, 1.0)
_RIDGE = 0.5
_FRESH = 4_096  # samples on which the error of a run is measured
_MARKS = {"GD": "^", "SGD": "s", "persistent SGD": "o"}


def start_of_ridge():
    """Eq. (C.2): a standard normal vector beside the signal."""
    return warm(START, 1 + START**2)


def unscaled(rate: float, ridge: float) -> dict[str, ReusedData]:
    r"""The algorithms without the factor $1/\ell$ of the gradient.

    Steps $\eta [\sum_\mu s_\mu v' x + \lambda w]$ are those of rate $\ell \eta$ and ridge $\lambda / \ell$ with the
    factor, in a time that runs $\ell$ times slower: so does the batch.
    """
    part = BATCH_FRACTION
    slower = algorithms(part * rate, persistence=part * PERSISTENCE, sphere=False, ridge=ridge / part)
    return slower | {"GD": algorithms(rate, sphere=False, ridge=ridge)["GD"]}


def fresh_error(runs: Measured) -> np.ndarray:
    """The squared error of absolute fields on fresh samples, for each run and time.

    Given the weights, the two fields of a sample are exactly Gaussian; here they are the points of a Sobol net.
    """
    draws = sobol_normals(_FRESH, 2, np.random.default_rng(0)).T
    m, rest = runs.m[..., None], np.sqrt(np.maximum(runs.q - runs.m**2, 0.0))[..., None]
    total = np.zeros(runs.m.shape)
    for teacher, other in np.split(draws, 64, axis=1):
        total += np.sum((np.abs(teacher) - np.abs(m * teacher + rest * other)) ** 2, axis=-1)
    return total / _FRESH


def _panel(axes, found: dict[str, Measured], errors: dict[str, np.ndarray], rate: float, title: str) -> None:
    for name, each in found.items():
        style = {"color": COLOURS[name], "linestyle": "none", "markersize": 4}
        axes.plot(each.time + rate, errors[name].mean(axis=0), _MARKS[name], label=name, **style)
        lines = {
            "eq. (B.8), averaged": (mean_squared_error(each.q, each.m).mean(axis=0), DARK, "-"),
            "(B.8) at average overlaps": (mean_squared_error(each.q.mean(axis=0), each.m.mean(axis=0)), GREY, "--"),
        }
        for label, (values, colour, line) in lines.items():
            shown = label if name == "persistent SGD" else None
            axes.plot(each.time + rate, values, line, color=colour, linewidth=1.0, label=shown)
    over_time(axes, "mean squared error", title)
    axes.set_ylim(0, 1.35 * axes.get_ylim()[1])
    axes.legend(fontsize=8, loc="upper right", ncols=2)
    inset = loss_inset(axes, (0.1, 0.12, 0.36, 0.32))
    for name, each in found.items():
        curve(inset, each.time, above_floor(each.loss.mean(axis=0)), rate, name)


def _made(size: Size, cases: list[dict[str, ReusedData]], seed: int):
    """Simulations and errors for each panel; times are those of the plan, for algorithms with a slower clock too."""
    plan = _PLAN[size]
    found = []
    for each in cases:
        row = {}
        for name, algorithm in each.items():
            slower = float(algorithm.learning_rate) / plan.rate
            runs = measure(plan, algorithm, start_of_ridge(), seed=seed, times=slower * plan.times(40))
            row[name] = dataclasses.replace(runs, time=runs.time / slower)
        found.append(row)
    errors = [{name: fresh_error(runs) for name, runs in row.items()} for row in found]
    return plan, found, errors


def _dataset(found: list[dict[str, Measured]], errors, labels: list[str], axis: str, plan: Plan):
    import xarray

    names = list(found[0])

    def averages(of) -> np.ndarray:
        return np.stack([np.stack([of(row, name).mean(axis=0) for name in names]) for row in range(len(found))])

    return xarray.Dataset(
        {
            "mean_squared_error": ((axis, "algorithm", "time"), averages(lambda row, name: errors[row][name])),
            "m": ((axis, "algorithm", "time"), averages(lambda row, name: found[row][name].m)),
            "q": ((axis, "algorithm", "time"), averages(lambda row, name: found[row][name].q)),
            "training_loss": ((axis, "algorithm", "time"), averages(lambda row, name: found[row][name].loss)),
            "diverged": ((axis, "algorithm"), [[row[name].diverged for name in names] for row in found]),
        },
        coords={axis: labels, "algorithm": names, "time": found[0]["GD"].time},
        attrs={"d": plan.d, "learning_rate": plan.rate, "runs": plan.runs, "datasets": plan.datasets},
    )


def _at_the_end(errors: list[dict[str, np.ndarray]], plan: Plan) -> tuple[dict[str, list[float]], str]:
    """The average error of each algorithm at the end, by panel, and the same with standard errors in words."""
    end = {name: [float(error[name][:, -1].mean()) for error in errors] for name in errors[0]}
    spread = {name: [float(standard_error(error[name][:, -1], plan.datasets)) for error in errors] for name in end}
    words = "; ".join(
        f"{name}: " + ", ".join(f"{v:.3f} +- {e:.3f}" for v, e in zip(values, spread[name], strict=True))
        for name, values in end.items()
    )
    return end, words


def _drawn(plan: Plan, found, errors, titles: list[str], words: str):
    figure, axes = panels(1, len(titles), width=4.9)
    for number, (panel, title) in enumerate(zip(axes, titles, strict=True)):
        _panel(panel, found[number], errors[number], plan.rate, f"({'abc'[number]})  {title}")
    caption(figure, f"{words}, {SETTING}; {plan.described()}")
    return figure


@in_style
def figB1(size: Size) -> Reproduction:
    """Mean squared error and training loss with ridges 0, 0.1 and 1 in place of the sphere.

    Full size: d = 500, learning rate 0.01 until t = 200, 64 runs on 16 datasets (the source: d = 1000, 250 runs on as
    many). Quick: d = 80 until t = 50, 48 runs on 12 datasets. Errors are measured on 4096 fresh
    samples. Where runs differ, the average of (B.8) is not (B.8) at the average overlaps, which the source draws.
    Persistent SGD at ridges 0 and 0.1, which is slow, goes on until t = 1000 where it is compared with ridge 1.
    """
    cases = [algorithms(_PLAN[size].rate, sphere=False, ridge=ridge) for ridge in _RIDGES]
    plan, found, errors = _made(size, cases, _SEED)
    data = _dataset(found, errors, [f"{ridge:g}" for ridge in _RIDGES], "ridge", plan)
    figure = _drawn(plan, found, errors, [rf"$\lambda$ = {ridge:g}" for ridge in _RIDGES], "Ridge")
    return Reproduction(data, figure, _figb1_claims(found, errors, plan, size))


def _figb1_claims(found, errors, plan: Plan, size: Size) -> tuple[Claim, ...]:
    measured, predicted = [], []
    for row, error in zip(found, errors, strict=True):
        for name, each in row.items():
            measured.append(error[name].mean())
            predicted.append(mean_squared_error(each.q, each.m).mean())
    end, remark = _at_the_end(errors, plan)
    claims = [
        Claim(
            "Fig. B.1, eq. (B.8)",
            "The mean squared error of simulations is that of eq. (B.8): averages over runs and times, all panels.",
            predicted,
            measured,
            0.005,
            remark=f"(B.8) at the overlaps of each run; {_FRESH} fresh samples, from a Sobol net.",
        ),
    ]
    if size == "full":
        last = [(row[name], each[name]) for row, each in zip(found, errors, strict=True) for name in row]
        claims.append(
            Claim(
                "Fig. B.1, (B.8) at average overlaps",
                "The average error of simulations is (B.8) at the average q and m: at the end, all panels.",
                [float(mean_squared_error(runs.q[:, -1].mean(), runs.m[:, -1].mean())) for runs, _ in last],
                [float(each[:, -1].mean()) for _, each in last],
                0.02,
                correction="Overlaps do not concentrate where some runs recover and others do not: average (B.8).",
                corrected=[float(mean_squared_error(runs.q[:, -1], runs.m[:, -1]).mean()) for runs, _ in last],
            )
        )
        claims += _low_ridges(errors[2]["persistent SGD"][:, -1])
        claims.append(
            Claim(
                "Fig. B.1, SGD",
                "SGD profits from the ridge: 1 if its error at the end is lower at 1 than at 0.",
                1.0,
                float(end["SGD"][2] < end["SGD"][0]),
                0.0,
                remark=f"SGD takes each sample with probability 1/2. Errors at ridges 0, 0.1 and 1: {remark}.",
            )
        )
        claims += _double_descent([error["persistent SGD"] for error in errors[:2]], plan.datasets)
    return tuple(claims)


def _low_ridges(with_ridge: np.ndarray) -> list[Claim]:
    """Persistent SGD at low ridges, once at rest, against its errors at ridge 1 on the same data and starts."""
    claims = []
    for ridge in _RIDGES[:2]:
        algorithm = algorithms(_AT_REST.rate, sphere=False, ridge=ridge)["persistent SGD"]
        runs = measure(_AT_REST, algorithm, start_of_ridge(), seed=_SEED, times=_AT_REST.times(2))
        end = fresh_error(runs)[:, -1]
        gap, error = difference(with_ridge, end, _AT_REST.datasets)
        claims.append(
            Claim(
                f"Fig. B.1, persistent SGD at ridge {ridge:g}",
                f"Persistent SGD generalizes better at low ridges: 1 if its error at ridge {ridge:g}, t = "
                f"{_AT_REST.end:g}, is lower than at ridge 1 by two standard errors.",
                1.0,
                float(gap > 2 * error),
                0.0,
                remark=f"{end.mean():.3f} against {with_ridge.mean():.3f}, lower by {gap:.3f} +- {error:.3f}; half of "
                f"the runs are below {np.median(end):.3f}.",
            )
        )
    return claims


def _double_descent(errors: list[np.ndarray], datasets: int) -> list[Claim]:
    claims = []
    for ridge, values in zip(_RIDGES[:2], errors, strict=True):
        rise, error = largest_rise(values, datasets)
        claims.append(
            Claim(
                f"Fig. B.1, double descent at ridge {ridge:g}",
                f"At ridge {ridge:g} the error of persistent SGD falls, rises and falls over time: 1 if it rises in "
                "between by three standard errors.",
                1.0,
                float(rise > 3 * error),
                0.0,
                remark=f"It rises by {rise:.4f} +- {error:.4f} between the two times where the average rises most.",
            )
        )
    return claims


def largest_rise(values: np.ndarray, datasets: int) -> tuple[float, float]:
    """The largest increase of the mean over runs from one time to a later one, and its standard error, run by run."""
    mean = values.mean(axis=0)
    later = int(np.argmax(mean - np.minimum.accumulate(mean)))
    earlier = int(np.argmin(mean[: later + 1]))
    return difference(values[:, later], values[:, earlier], datasets)


@in_style
def figB2(size: Size) -> Reproduction:
    """Mean squared error at ridge 0.5 with gradients divided by the batch fraction (a), or not (b). Sizes as in B.1."""
    rate = _PLAN[size].rate
    cases = [algorithms(rate, sphere=False, ridge=_RIDGE), unscaled(rate, _RIDGE)]
    plan, found, errors = _made(size, cases, 16)
    data = _dataset(found, errors, ["rescaled", "not rescaled"], "gradients", plan)
    titles = [r"gradients $\times\, 1/\ell$", "gradients not rescaled"]
    figure = _drawn(plan, found, errors, titles, f"Ridge {_RIDGE:g}")
    end, remark = _at_the_end(errors, plan)
    claims = [
        Claim(
            "Fig. B.2, rescaling changes the ridge",
            "Without the sphere, rescaling gradients is more than another learning rate: 1 if Q at the end differs.",
            1.0,
            float(abs(found[0]["SGD"].q[:, -1].mean() - found[1]["SGD"].q[:, -1].mean()) > 0.05),
            0.0,
            remark="Without it the ridge counts for 1 / batch fraction as much.",
        )
    ]
    if size == "full":
        claims += [
            Claim(
                "Fig. B.2, persistent SGD",
                "Rescaling is beneficial for persistent SGD: 1 if its error at the end is lower with it.",
                1.0,
                float(end["persistent SGD"][0] < end["persistent SGD"][1]),
                0.0,
                remark=remark,
            ),
            Claim(
                "Fig. B.2, SGD",
                "SGD performs better without rescaling: 1 if its error at the end is lower without.",
                1.0,
                float(end["SGD"][1] < end["SGD"][0]),
                0.0,
                remark="SGD takes each sample with probability 1/2. " + remark,
            ),
        ]
    return Reproduction(data, figure, tuple(claims))
