"""Figure 7: from a random start, where finite size alone gives a direction."""

import numpy as np

from dimfree import Claim, GradientDescent, PersistentSGD, Reproduction, State
from dimfree.papers import Size

from ..drawing_style import in_style, panels
from .conventions import BATCH_FRACTION, Measured, Plan, measure, standard_error, warm
from .drawing import above_floor, caption, curve, loss_inset, over_time

# More than a decade of d, until a good part of the runs has recovered, and more runs where they are cheap.
_PLANS = {
    "quick": tuple(Plan(d, 64, 32, 0.02, 80.0) for d in (10, 20, 40, 80)),
    "full": tuple(
        Plan(d, runs, datasets, 0.02, 2_000.0)
        for d, runs, datasets in ((40, 256, 64), (100, 256, 64), (250, 128, 32), (640, 64, 16))
    ),
}
_FOUND = 0.9  # the overlap at which a run is called recovered
_SAVED = 160  # times, of which two are apart by less than a tenth: recovery times are read from them
_RESAMPLED = 2_000  # sets of datasets drawn for a standard error


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

    Persistence 2, half of the samples in a batch. Full size: d = 40, 100, 250, 640 (the source: 100 to 2500), learning
    rate 0.02 (there 0.01) until t = 2000, 256 to 64 runs on 64 to 16 datasets. Quick: d = 10, 20, 40, 80 until t = 80,
    64 runs on 32 datasets.
    """
    import xarray

    found: list[dict[str, Measured]] = []
    data = xarray.Dataset(attrs={"learning_rate": _PLANS[size][0].rate})
    figure, axes = panels(2, 2, height=3.6)
    for number, (panel, plan) in enumerate(zip(axes, _PLANS[size], strict=True)):
        starts = random_starts(plan.runs, plan.d, seed=7)
        both = {
            name: measure(plan, algorithm, starts, seed=7, times=plan.times(_SAVED))
            for name, algorithm in (
                ("GD", GradientDescent(plan.rate, 2.5, sphere=True)),
                ("persistent SGD", PersistentSGD(plan.rate, 2.5, BATCH_FRACTION, 2.0, sphere=True)),
            )
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
        title = f"({'abcd'[number]})  d = {plan.d:,}, {plan.runs} runs on {plan.datasets} datasets"
        over_time(panel, r"median $|m|$", title)
        panel.set_ylim(0, 1.4)
        panel.legend(loc="upper right", fontsize=9)
    caption(figure, f"Random starts, M/d = 2.5, learning rate {_PLANS[size][0].rate:g}")
    return Reproduction(data, figure, _claims(found, size))


def _claims(found: list[dict[str, Measured]], size: Size) -> tuple[Claim, ...]:
    plans = _PLANS[size]
    dimensions = ", ".join(f"{plan.d:,}" for plan in plans)
    levels = [np.abs(each["GD"].m[:, -1]) for each in found]
    plateau = np.array([np.median(level) for level in levels])
    error = [standard_error(level, plan.datasets) for level, plan in zip(levels, plans, strict=True)]
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
            + ". The law of the growth is a claim of the full size.",
        ),
    ]
    if size == "full":
        claims.append(_growth(plans, times, share))
        claims.append(
            Claim(
                "Fig. 7, persistent SGD recovers",
                "On 2.5 d samples persistent SGD reaches the signal: 1 if half of the runs do by the end.",
                np.ones(len(plans)),
                [float(value >= 0.5) for value in share],
                0.0,
                remark=f"Recovered at d = {dimensions}: " + ", ".join(f"{value:.2f}" for value in share),
            )
        )
    return tuple(claims)


def _growth(plans: tuple[Plan, ...], times: list[np.ndarray], share: np.ndarray) -> Claim:
    """Whether the time to recovery grows as the logarithm of d: by the largest quantile that is safely reached."""
    level = float(min(0.5, 0.6 * share.min()))
    found = [_quantile(each, plan.datasets, level) for each, plan in zip(times, plans, strict=True)]
    value, error = np.array(found).T
    log_d = np.log([plan.d for plan in plans])

    def deviation(values: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
        slope, offset = np.polyfit(log_d, values, 1, w=1 / errors)
        return float(np.max(np.abs(values - offset - slope * log_d) / errors)), float(slope)

    by_logarithm, _ = deviation(value, error)
    by_power, exponent = deviation(np.log(value), error / value)
    return Claim(
        "Fig. 7, logarithm",
        "The time that persistent SGD needs is compatible with a logarithm of d: 1 if no deviation from a + b log d is "
        "larger than three standard errors.",
        1.0,
        float(by_logarithm < 3),
        0.0,
        remark=f"Time by which a fraction {level:.2f} of the runs has recovered, at d = "
        + ", ".join(f"{plan.d:,}: {v:.3g} +- {e:.2g}" for plan, v, e in zip(plans, value, error, strict=True))
        + f". Largest deviation from a logarithm: {by_logarithm:.1f} standard errors; from a power of d, with the "
        f"exponent {exponent:.2f}: {by_power:.1f}.",
    )


def _quantile(times: np.ndarray, datasets: int, level: float) -> tuple[float, float]:
    """The time by which this fraction of the runs has recovered, and its standard error over the datasets."""
    groups = times.reshape(datasets, -1)
    drawn = np.random.default_rng(0).integers(datasets, size=(_RESAMPLED, datasets))
    resampled = np.quantile(groups[drawn].reshape(_RESAMPLED, -1), level, axis=1, method="nearest")
    # Half of the interval that holds 68%: a few draws may not reach the level at all, and are infinite.
    low, high = np.quantile(resampled, [0.16, 0.84], method="nearest")
    return float(np.quantile(times, level, method="nearest")), float(high - low) / 2
