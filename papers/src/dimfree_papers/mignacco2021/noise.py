"""Figure 4: which noise helps, and how much of it."""

import dataclasses

import numpy as np

from dimfree import Claim, Langevin, MultiPassSGD, PersistentSGD, PiecewiseLinear, Reproduction
from dimfree.algorithms import ReusedData
from dimfree.papers import Size

from ..drawing_style import in_style, panels, shades
from .conventions import (
    BATCH_FRACTION,
    PERSISTENCE,
    SAMPLES,
    SETTING,
    START,
    Measured,
    Plan,
    difference,
    measure,
    standard_error,
    warm,
)
from .drawing import LOSS, OVERLAP, above_floor, caption, over_time

# The source has 250 runs, each on its own dataset, which is 28 times the steps of figure 2. These take an hour.
_PLAN = {"quick": Plan(60, 32, 16, 0.02, 40.0), "full": Plan(500, 32, 8, 0.01, 400.0)}
_COLD = 0.7  # of the time, after which the temperature is zero
_BATCHES = {"quick": (0.1, 0.3, 0.6, 0.9, 1.0), "full": (0.01, 0.05, 0.1, 0.3, 0.9, 0.95, 1.0)}
_PERSISTENCES = {"quick": (0.05, 0.5, 1.0, 2.0, 20.0), "full": (0.05, 0.1, 0.5, 1.0, 2.0, 5.0)}
_TEMPERATURES = {"quick": (0.0, 0.1, 0.5, 2.0, 10.0), "full": (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)}


def _rate_for(fraction: float, plan: Plan) -> float:
    """The learning rate: smaller where a batch is, and each sample of it counts for more, as in the source."""
    return plan.rate * (0.25 if fraction < 0.1 else 0.5 if fraction == 0.1 else 1.0)


def cooled(temperature: float, until: float, step: float) -> PiecewiseLinear:
    """A temperature that is switched off, within a step."""
    return PiecewiseLinear([0.0, until, until + step], [temperature, temperature, 0.0])


def _curves(size: Size) -> dict[str, list[tuple[str, ReusedData]]]:
    plan = _PLAN[size]
    rate = plan.rate
    by_batch: list[tuple[str, ReusedData]] = [
        (rf"$\ell$ = {each:g}", PersistentSGD(_rate_for(each, plan), SAMPLES, each, PERSISTENCE, sphere=True))
        for each in _BATCHES[size]
    ]
    by_persistence: list[tuple[str, ReusedData]] = [
        (rf"$\tau$ = {each:g}", PersistentSGD(rate, SAMPLES, BATCH_FRACTION, each, sphere=True))
        for each in _PERSISTENCES[size]
    ]
    by_persistence.append(("SGD", MultiPassSGD(rate, SAMPLES, BATCH_FRACTION, sphere=True)))
    by_temperature: list[tuple[str, ReusedData]] = [
        (f"T = {each:g}", Langevin(rate, SAMPLES, cooled(each, _COLD * plan.end, rate), sphere=True))
        for each in _TEMPERATURES[size]
    ]
    return {"batch": by_batch, "persistence": by_persistence, "temperature": by_temperature}


@in_style
def fig4(size: Size) -> Reproduction:
    """Median overlap and loss of persistent SGD by batch and by persistence, and of Langevin dynamics by temperature.

    Full size: the source's learning rates and values, at d = 500 until t = 400 with the temperature off at t = 280
    (there 1000, 1000 and 700), with 32 runs on 8 datasets in place of 250 on as many. Quick: d = 60, learning rate 0.02
    (0.01 for batches of a tenth), five values of each until t = 40, the temperature off at t = 28, 32 runs on 16
    datasets.
    """
    import xarray

    plan = _PLAN[size]
    found: dict[str, list[Measured]] = {}
    data = xarray.Dataset(attrs={"d": plan.d, "learning_rate": plan.rate, "datasets": plan.datasets})
    figure, axes = panels(2, 3, width=4.8, height=3.8)
    titles = {
        "batch": r"persistent SGD, $\tau$ = 1",
        "persistence": r"persistent SGD, $\ell$ = 0.5",
        "temperature": "Langevin",
    }
    for column, (what, curves) in enumerate(_curves(size).items()):
        upper, lower = axes[column], axes[3 + column]
        colours = shades(len(curves))
        found[what] = []
        for number, (label, algorithm) in enumerate(curves):
            each = measure(
                dataclasses.replace(plan, rate=float(algorithm.learning_rate)), algorithm, warm(START), seed=4
            )
            found[what].append(each)
            colour = "black" if label == "SGD" else colours[number]
            style = {"color": colour, "linewidth": 1.5, "linestyle": "--" if label == "SGD" else "-", "label": label}
            upper.plot(each.time + plan.rate, np.median(each.m, axis=0), **style)
            lower.plot(each.time + plan.rate, above_floor(np.median(each.loss, axis=0)), **style)
            axis = f"time_{what}_{number}"
            data[f"m_{what}_{number}"] = ((f"run_{what}_{number}", axis), each.m)
            data[f"training_loss_{what}_{number}"] = ((f"run_{what}_{number}", axis), each.loss)
            data[f"m_{what}_{number}"].attrs["label"] = label
            data = data.assign_coords({axis: each.time})
        over_time(upper, f"median {OVERLAP}", f"({'abc'[column]})  {titles[what]}")
        over_time(lower, f"median {LOSS}", f"({'def'[column]})  {titles[what]}")
        lower.set(yscale="log")
        lower.legend(ncols=2, loc="lower left")  # of both panels, where no curve is
    caption(figure, f"{SETTING}; {plan.described()}")
    return Reproduction(data, figure, _claims(found, size, plan))


def _performance(found: list[Measured], plan: Plan) -> list[np.ndarray]:
    """For each curve the overlap of each run on average over the logarithm of time, from a tenth of it on."""
    return [each.m[:, each.time >= plan.end / 10].mean(axis=1) for each in found]


def _claims(found: dict[str, list[Measured]], size: Size, plan: Plan) -> tuple[Claim, ...]:
    claims = []
    for what, words in (("batch", "batch fraction"), ("persistence", "persistence"), ("temperature", "temperature")):
        curves = found[what][:-1] if what == "persistence" else found[what]
        value = _performance(curves, plan)
        remark = "Overlap averaged from a tenth of the time on: " + ", ".join(
            f"{each.mean():.2f} +- {standard_error(each, plan.datasets):.2f}" for each in value
        )
        if size == "full":
            best = int(np.argmax([each.mean() for each in value]))
            gaps = [difference(value[best], value[end], plan.datasets) for end in (0, -1)]
            claims.append(
                Claim(
                    f"Fig. 4, {words}",
                    f"The best {words} is neither the smallest nor the largest: 1 if it is better than both by two "
                    "standard errors.",
                    1.0,
                    float(all(gap > 2 * error for gap, error in gaps)),
                    0.0,
                    remark=f"{remark}; better than the smallest and the largest by "
                    + " and ".join(f"{gap:.2f} +- {error:.2f}" for gap, error in gaps)
                    + ".",
                )
            )
        elif what != "batch":
            gap, error = difference(value[len(curves) // 2], value[-1], plan.datasets)
            claims.append(
                Claim(
                    f"Fig. 4, {words}, largest",
                    f"The {words} in the middle is better than the largest: 1 if by two standard errors.",
                    1.0,
                    float(gap > 2 * error),
                    0.0,
                    remark=f"{remark}; difference {gap:.2f} +- {error:.2f}. That the smallest is not the best, "
                    "and the same of the batch fraction, are claims of the full size.",
                )
            )
    if size == "full":
        best = max(float(np.median(each.m[:, -1])) for each in found["persistence"][:-1])
        claims.append(
            Claim(
                "Fig. 4, vanilla SGD",
                "An intermediate persistence is better than vanilla SGD: 1 if its median overlap at the end is larger.",
                1.0,
                float(best > np.median(found["persistence"][-1].m[:, -1])),
                0.0,
                remark="SGD takes each sample with probability 1/2.",
            )
        )
    return tuple(claims)
