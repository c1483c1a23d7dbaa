"""Figures 2, 3, B.3 and B.4: gradient descent, SGD and persistent SGD side by side."""

import functools

import numpy as np
from scipy import stats

from dimfree import Claim, Reproduction
from dimfree.papers import Size

from ..drawing_style import in_style, panels, shades
from .conventions import AT_SIGNAL, COLOURS, SETTING, START, Measured, Plan, algorithms, measure, standard_error, warm
from .drawing import LOSS, OVERLAP, above_floor, caption, curve, over_time

# The source has 500 and 250 runs, each on its own dataset of d = 1000. These are what two cores do in an hour.
_FIG2 = {"quick": Plan(100, 64, 16, 0.02, 100.0), "full": Plan(1_000, 64, 4, 0.01, 1_000.0)}
_FIGB3 = {"quick": Plan(60, 32, 8, 0.02, 10.0), "full": Plan(500, 32, 8, 0.01, 15.0)}
_RATES = {"quick": (0.02, 0.01, 0.005, 0.0025), "full": (0.01, 0.001, 0.0005, 0.0001)}
_FIGB4 = {"quick": Plan(100, 32, 8, 0.02, 100.0), "full": Plan(500, 48, 12, 0.01, 1_000.0)}
_PERSISTENCES = (0.05, 0.5, 2.0, 5.0)
_PRINTED = {"GD": 0.09, "SGD": 0.30, "persistent SGD": 0.99}


@functools.lru_cache(maxsize=1)
def _headline(size: Size) -> dict[str, Measured]:
    """The runs of figures 2 and 3; the algorithms see the same data and starts."""
    plan = _FIG2[size]
    return {name: measure(plan, algorithm, warm(START), seed=2) for name, algorithm in algorithms(plan.rate).items()}


def _dataset(found: dict[str, Measured], plan: Plan):
    import xarray

    return xarray.Dataset(
        {
            "m": (("algorithm", "run", "time"), np.stack([each.m for each in found.values()])),
            "training_loss": (("algorithm", "run", "time"), np.stack([each.loss for each in found.values()])),
        },
        coords={"algorithm": list(found), "time": found["GD"].time},
        attrs={"d": plan.d, "learning_rate": plan.rate, "datasets": plan.datasets},
    )


@in_style
def fig2(size: Size) -> Reproduction:
    """Average overlap and training loss over time; samples 3 d, start at m = 0.2, half of the samples in a batch.

    Full size: d = 1000, learning rate 0.01, t = 1000 as in the source, with 64 runs on 4 datasets in place of 500 on
    as many (50 minutes on two cores, figure 3 included). Quick: d = 100, learning rate 0.02, t = 100, 64 runs on 16
    datasets.
    SGD takes each sample with probability 1/2; the source draws with replacement.
    """
    plan, found = _FIG2[size], _headline(size)
    figure, (left, right) = panels(1, 2)
    for name, each in found.items():
        share = f"{name}, {100 * each.recovered.mean():.0f}% recovered"
        curve(left, each.time, each.m.mean(axis=0), plan.rate, name)
        curve(right, each.time, above_floor(each.loss.mean(axis=0)), plan.rate, name, share)
    over_time(left, f"average {OVERLAP}", "(a)")
    over_time(right, f"average {LOSS}", "(b)")
    right.set(yscale="log")
    for axes in (left, right):
        axes.legend()
    caption(figure, f"{SETTING}; {plan.described()}")
    return Reproduction(_dataset(found, plan), figure, _fig2_claims(found, plan, size))


def _fig2_claims(found: dict[str, Measured], plan: Plan, size: Size) -> tuple[Claim, ...]:
    share = {name: float(each.recovered.mean()) for name, each in found.items()}
    error = {name: float(standard_error(each.recovered, plan.datasets)) for name, each in found.items()}
    losses = np.concatenate([each.loss[:, -1] for each in found.values()])
    middle = float(np.mean((losses > 1e-7) & (losses < 1e-3)))
    claims = [
        Claim(
            "Fig. 2, persistent SGD outperforms GD",
            "Persistent SGD finds the signal more often than gradient descent: 1 if by more than two standard errors.",
            1.0,
            float(share["persistent SGD"] - share["GD"] > 2 * np.hypot(error["persistent SGD"], error["GD"])),
            0.0,
            remark=", ".join(f"{name} {share[name]:.2f} +- {error[name]:.2f}" for name in share)
            + f"; {plan.described()}.",
        ),
    ]
    if size == "full":
        for name, printed in _PRINTED.items():
            # That of the source's 500 runs, and never less than that of a fraction so close to 0 or 1.
            floor = (printed * (1 - printed) * (1 / plan.runs + 1 / 500)) ** 0.5
            found_it = int(np.sum(found[name].recovered))
            interval = stats.binomtest(found_it, found[name].recovered.size).proportion_ci(method="wilson")
            remark = (
                f"Printed {printed:.2f}; here {found_it} of {found[name].recovered.size}, 95% interval "
                f"{interval.low:.3f} to {interval.high:.3f} ({plan.datasets} datasets, standard error over them "
                f"{error[name]:.3f}). Tolerance: three standard errors of both."
            )
            if name == "SGD":
                remark += (
                    " Each sample with probability 1/2; drawn with replacement, as in the source,"
                    " the noise is twice as large."
                )
            claims.append(
                Claim(
                    f"Fig. 2, fraction of {name}",
                    f"Fraction of runs of {name} with training loss below 1e-7 at t = 1000.",
                    printed,
                    share[name],
                    3 * float(np.hypot(floor, error[name])),
                    remark=remark,
                )
            )
        claims += [
            Claim(
                "Fig. 2, SGD in between",
                "The average overlap of SGD lies between the two at the end: 1 if so.",
                1.0,
                float(
                    found["GD"].m[:, -1].mean() < found["SGD"].m[:, -1].mean() < found["persistent SGD"].m[:, -1].mean()
                ),
                0.0,
            ),
            Claim(
                "Fig. 2, threshold",
                "Runs have recovered or are far from it: the fraction with a loss between 1e-7 and 1e-3.",
                0.0,
                middle,
                0.03,
            ),
        ]
    return tuple(claims)


@in_style
def fig3(size: Size) -> Reproduction:
    """Single runs of figure 2, up to 50 of each algorithm; sizes as there."""
    plan, found = _FIG2[size], _headline(size)
    figure, axes = panels(1, 3, width=4.6)
    for panel, letter, (name, each) in zip(axes, "abc", found.items(), strict=True):
        panel.plot(each.time + plan.rate, each.m[:50].T, color=COLOURS[name], linewidth=0.7, alpha=0.55)
        panel.plot(each.time + plan.rate, np.median(each.m, axis=0), color="black", linewidth=1.6, label="median")
        over_time(panel, OVERLAP, f"({letter})  {name}")
        panel.set_ylim(-0.45, 1.05)
        panel.legend(loc="lower left")
    caption(figure, f"{SETTING}; {plan.described()}")
    late = {name: each.m[:, each.time > 0.2 * plan.end] for name, each in found.items()}
    stuck = {
        name: float(np.mean((m.max(axis=1) - m.min(axis=1) < 0.02) & (np.abs(m[:, -1]) < AT_SIGNAL)))
        for name, m in late.items()
    }
    claims = (
        Claim(
            "Fig. 3, plateaus",
            "Gradient descent stays in one place for long, persistent SGD does not: 1 if the fraction of runs that "
            "moved by less than 0.02 since a fifth of the time, without recovery, is larger by 0.2.",
            1.0,
            float(stuck["GD"] - stuck["persistent SGD"] > 0.2),
            0.0,
            remark=", ".join(f"{name} {value:.2f}" for name, value in stuck.items()),
        ),
    )
    return Reproduction(_dataset(found, plan), figure, claims)


@in_style
def figB3(size: Size) -> Reproduction:
    """Overlap and loss at decreasing learning rates: SGD becomes gradient descent, persistent SGD does not.

    Full size: the source's learning rates 0.01, 0.001, 0.0005, 0.0001, until t = 15, at d = 500 in place of 1000, with
    32 runs on 8 datasets in place of 250 (the smallest rate needs 150,000 steps). Quick: d = 60, rates from 0.02 to
    0.0025, until t = 10. All see the same data and starts.
    """
    import xarray

    plan, rates = _FIGB3[size], _RATES[size]
    times = plan.times(40)  # a whole number of steps of each rate, so that runs are compared at the same ones
    found = [
        {name: measure(plan, each, warm(START), seed=13, times=times) for name, each in algorithms(rate).items()}
        for rate in rates
    ]
    m = np.stack([np.stack([each.m for each in row.values()]) for row in found])
    loss = np.stack([np.stack([each.loss for each in row.values()]) for row in found])
    data = xarray.Dataset(
        {
            "m": (("learning_rate", "algorithm", "run", "time"), m),
            "training_loss": (("learning_rate", "algorithm", "run", "time"), loss),
        },
        coords={"learning_rate": list(rates), "algorithm": list(found[0]), "time": times},
        attrs={"d": plan.d, "datasets": plan.datasets},
    )
    figure, (left, right) = panels(1, 2)
    for row, rate in enumerate(rates):
        for column, name in enumerate(found[0]):
            shade = {"alpha": 0.3 + 0.7 * row / (len(rates) - 1), "color": COLOURS[name], "linewidth": 1.5}
            label = f"{name}, $\\eta$ = {rate:g}" if row in (0, len(rates) - 1) else None
            left.plot(times + plan.rate, m[row, column].mean(axis=0), label=label, **shade)
            right.plot(times + plan.rate, above_floor(loss[row, column].mean(axis=0)), label=label, **shade)
    over_time(left, f"average {OVERLAP}", "(a)")
    over_time(right, f"average {LOSS}", "(b)")
    right.set(yscale="log")
    for axes in (left, right):
        axes.legend(fontsize=8)
    caption(figure, f"{SETTING}; d = {plan.d:,}, {plan.runs} runs on {plan.datasets} datasets")
    return Reproduction(data, figure, _figb3_claims(times, m, rates))


def _figb3_claims(times: np.ndarray, m: np.ndarray, rates: tuple[float, ...]) -> tuple[Claim, ...]:
    # Early, because runs that come to different minima are apart for good.
    early = (times > 0.05) & (times <= 0.5)
    apart = np.sqrt(np.mean((m[:, 1:, :, early] - m[:, :1, :, early]) ** 2, axis=(2, 3)))
    slopes = np.polyfit(np.log(rates), np.log(apart), 1)[0]
    return (
        Claim(
            "Fig. B.3, SGD",
            "SGD collapses on gradient descent: exponent of the distance of runs from the same start, with the rate.",
            0.5,
            float(slopes[0]),
            0.25,
            remark=f"Root mean square distance of the overlaps up to t = 0.5: {apart[0, 0]:.3f} to {apart[-1, 0]:.3f}. "
            "The noise of a batch adds up to a variance proportional to the rate.",
        ),
        Claim(
            "Fig. B.3, persistent SGD",
            "Persistent SGD has a limit of its own: the same exponent.",
            0.0,
            float(slopes[1]),
            0.25,
            remark=f"Distance from gradient descent: {apart[0, 1]:.3f} to {apart[-1, 1]:.3f}.",
        ),
    )


@in_style
def figB4(size: Size) -> Reproduction:
    """Single runs of persistent SGD at four persistence times.

    Full size: d = 500, learning rate 0.01 until t = 1000, 48 runs on 12 datasets (the source has d = 1000 and 50, each
    on its own). Quick: d = 100, learning rate 0.02 until t = 100, 32 runs on 8 datasets.
    """
    import xarray

    plan = _FIGB4[size]
    found = [
        measure(plan, algorithms(plan.rate, persistence=each)["persistent SGD"], warm(START), seed=14)
        for each in _PERSISTENCES
    ]
    m = np.stack([each.m for each in found])
    data = xarray.Dataset(
        {"m": (("persistence", "run", "time"), m)},
        coords={"persistence": list(_PERSISTENCES), "time": found[0].time},
        attrs={"d": plan.d, "learning_rate": plan.rate, "datasets": plan.datasets},
    )
    figure, axes = panels(2, 2, height=3.4)
    colours = shades(4)
    for number, (panel, each, persistence) in enumerate(zip(axes, found, _PERSISTENCES, strict=True)):
        panel.plot(each.time + plan.rate, each.m[:50].T, color=colours[number], linewidth=0.7, alpha=0.6)
        panel.plot(each.time + plan.rate, np.median(each.m, axis=0), color="black", linewidth=1.6, label="median")
        panel.axvline(persistence, color="grey", linewidth=1, linestyle=":", label=r"$t = \tau$")
        over_time(panel, OVERLAP, rf"({'abcd'[number]})  $\tau$ = {persistence:g}")
        panel.legend(loc="upper left")
    caption(figure, f"Persistent SGD, {SETTING}; {plan.described()}")
    return Reproduction(data, figure, _figb4_claims(found, plan, size))


def _figb4_claims(found: list[Measured], plan: Plan, size: Size) -> tuple[Claim, ...]:
    at = np.searchsorted(found[0].time, 2.0)
    held = [float(each.m[:, at].mean()) for each in found]
    # The same data and starts: run by run, most of the spread is common.
    gap = found[0].m[:, at] - found[-1].m[:, at]
    error = float(standard_error(gap, plan.datasets))
    stuck = [float(np.mean(np.abs(each.m[:, -1]) < AT_SIGNAL)) for each in found]
    claims = [
        Claim(
            "Fig. B.4, t below the persistence",
            "The overlap is held back until t is about the persistence: 1 if its average at t = 2 is lower for 5 than "
            "for 0.05, by two standard errors.",
            1.0,
            float(gap.mean() > 2 * error),
            0.0,
            remark="At t = 2: " + ", ".join(f"{value:.2f}" for value in held) + f"; difference +- {error:.2f}.",
        )
    ]
    if size == "full":
        claims.append(
            Claim(
                "Fig. B.4, stuck runs",
                "With increasing persistence fewer runs are stuck in the end: 1 if 0.05 has most of them.",
                1.0,
                float(stuck[0] > max(stuck[1:])),
                0.0,
                remark="Not recovered: " + ", ".join(f"{value:.2f}" for value in stuck),
            )
        )
    return tuple(claims)
