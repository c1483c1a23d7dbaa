"""Figure 7: from a random start, where finite size alone gives a direction."""

import numpy as np

from ...algorithms import GradientDescent, PersistentSGD
from ...state import State
from ..claims import Claim
from ..look import in_style, panels
from ..paper import Reproduction, Size
from .conventions import BATCH_FRACTION, Measured, Plan, measure, standard_error, warm
from .drawing import above_floor, caption, curve, loss_inset, over_time

# The steps of the largest dimension cost five times those of figure 2: these take about an hour and a half.
_PLANS = {
    "quick": tuple(Plan(d, 64, 32, 0.02, 80.0) for d in (10, 20, 40, 80)),
    "full": tuple(Plan(d, 16, 4, 0.01, 1_000.0) for d in (100, 500, 1_000, 2_500)),
}
_FOUND = 0.9  # the overlap at which a run is called recovered


def random_starts(runs: int, d: int, seed: int) -> State:
    """Directions that are uniform on the sphere: their overlaps with the signal."""
    draws = np.random.default_rng(seed).normal(size=(runs, d))
    return warm(draws[:, 0] / np.linalg.norm(draws, axis=1))


def recovery_times(runs: Measured) -> np.ndarray:
    """When each run first has |m| above 0.9; infinite where it has not."""
    above = np.abs(runs.m) > _FOUND
    return np.where(above.any(axis=1), runs.time[np.argmax(above, axis=1)], np.inf)


@in_style
def fig7(size: Size) -> Reproduction:
    r"""Median $|m|$ and training loss (insets) of gradient descent and persistent SGD on 2.5 d samples, by dimension.

    Persistence 2, half of the samples in a batch. Full size: d = 100, 500, 1000, 2500, learning rate 0.01 until
    t = 1000, 16 runs on 4 datasets for each (d = 2500 alone is an hour on two cores). Quick: d = 10, 20, 40, 80,
    learning rate 0.02 until t = 80, 64 runs on 32 datasets.
    """
    import xarray

    found: list[dict[str, Measured]] = []
    data = xarray.Dataset(attrs={"learning_rate": _PLANS[size][0].rate})
    figure, axes = panels(2, 2, height=3.6)
    for number, (panel, plan) in enumerate(zip(axes, _PLANS[size], strict=True)):
        starts = random_starts(plan.runs, plan.d, seed=7)
        both = {
            "GD": measure(plan, GradientDescent(plan.rate, 2.5, sphere=True), starts, seed=7),
            "persistent SGD": measure(
                plan, PersistentSGD(plan.rate, 2.5, BATCH_FRACTION, 2.0, sphere=True), starts, seed=7
            ),
        }
        found.append(both)
        inset = loss_inset(panel, (0.12, 0.52, 0.38, 0.36))
        for name, each in both.items():
            curve(panel, each.time, np.median(np.abs(each.m), axis=0), plan.rate, name)
            curve(inset, each.time, above_floor(np.median(each.loss, axis=0)), plan.rate, name)
            key = f"{name.split()[0]}_{plan.d}"
            data[f"m_{key}"] = ((f"run_{plan.d}", "time"), each.m)
            data[f"training_loss_{key}"] = ((f"run_{plan.d}", "time"), each.loss)
        data = data.assign_coords(time=both["GD"].time)
        over_time(panel, r"median $|m|$", f"({'abcd'[number]})  d = {plan.d:,}")
        panel.set_ylim(0, 1.4)
        panel.legend(loc="upper right", fontsize=9)
    plan = _PLANS[size][0]
    caption(
        figure,
        f"Random starts, M/d = 2.5; {plan.runs} runs on {plan.datasets} datasets, learning rate {plan.rate:g}",
    )
    return Reproduction(data, figure, _claims(found, size))


def _claims(found: list[dict[str, Measured]], size: Size) -> tuple[Claim, ...]:
    plans = _PLANS[size]
    dimensions = ", ".join(f"{plan.d:,}" for plan in plans)
    levels = [np.abs(each["GD"].m[:, -1]) for each in found]
    plateau = np.array([np.median(level) for level in levels])
    error = [standard_error(level, plans[0].datasets) for level in levels]
    times = [recovery_times(each["persistent SGD"]) for each in found]
    share = np.array([np.mean(np.isfinite(each)) for each in times])
    median = [float(np.median(each)) for each in times]
    # Ranks do not need the times of those that have not recovered.
    slower = np.mean(times[-1][:, None] > times[0][None]) + 0.5 * np.mean(times[-1][:, None] == times[0][None])
    claims = [
        Claim(
            "Fig. 7, plateau of GD",
            f"The overlap at which GD is stuck decreases with d: 1 if |m| at d = {plans[-1].d:,} is below "
            f"that at {plans[0].d:,} on average, by two standard errors.",
            1.0,
            float(levels[0].mean() - levels[-1].mean() > 2 * np.hypot(error[0], error[-1])),
            0.0,
            remark=f"Medians at d = {dimensions}: " + ", ".join(f"{value:.2f}" for value in plateau),
        ),
        Claim(
            "Fig. 7, time grows with d",
            f"Persistent SGD needs longer at larger d: 1 if a run at d = {plans[-1].d:,} is slower than one at "
            f"{plans[0].d:,} with a probability above 0.6.",
            1.0,
            float(slower > 0.6),
            0.0,
            remark=f"Probability {slower:.2f}. Median times to |m| > 0.9 at d = {dimensions}: "
            + ", ".join(f"{value:.3g}" for value in median)
            + ". That the growth is logarithmic cannot be decided at these sizes.",
        ),
    ]
    if size == "full":
        claims.append(
            Claim(
                "Fig. 7, persistent SGD recovers",
                "On 2.5 d samples persistent SGD reaches the signal: 1 if half of the runs do by t = 1000.",
                np.ones(len(plans)),
                [float(value >= 0.5) for value in share],
                0.0,
                remark=f"Recovered at d = {dimensions}: " + ", ".join(f"{value:.2f}" for value in share),
            )
        )
    return tuple(claims)
