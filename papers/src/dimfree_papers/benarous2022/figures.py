r"""The figures.

Times are on the source's clock, $t = \text{learning\_rate} \cdot \alpha$ with learning rate 1 (its $c_\delta$), which
the source does not state for the figures; nor does it state the number of steps in figures 2 and 3.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dimfree import Claim, OnlineSGD, Reproduction, SpikedTensor, State, linear_noise, simulate, solve
from dimfree.papers import Size

from ..drawing_style import BLUE, DARK, GREEN, GREY, RED, in_style
from .conventions import CLOCK, tensor_state
from .drawing import cross, four_panels, legend_above, spread

_SNRS = (0.8, 1.2)
_TIMES = np.concatenate([np.linspace(0.0, 1.5, 61), np.linspace(1.6, 10.0, 85)])
# Warm starts (m, r^2) of panels (b) and (d).
_WARM = np.array(
    [[0.7, 0.25], [-0.7, 0.25], [0.25, 0.1], [-0.25, 0.1], [0.6, 1.6], [-0.6, 1.6], [0.15, 1.8], [-0.15, 1.8]]
)


@in_style
def fig1(size: Size) -> Reproduction:
    r"""Matrix PCA at snr 0.8 (a, b) and 1.2 (c, d): the overlap over time, and runs in the plane of m and r^2.

    Full size: n = 1500 and 10 n steps, as in the source; quick: n = 750. From $N(0, I/n)$: 400 runs, of which ten are
    drawn with the deviation that eq. (3.2) gives. In (b) and (d) also warm starts, one run each until t = 1.5, with the
    ODE.
    """
    import xarray

    n, cold, shown = 1500 if size == "full" else 750, 400, 10
    draws = np.random.default_rng(1).normal(size=(cold, n)) / n**0.5
    m = np.concatenate([draws[:, 0], _WARM[:, 0]])
    r2 = np.concatenate([np.sum(draws[:, 1:] ** 2, axis=1), _WARM[:, 1]])
    runs = [
        simulate(
            SpikedTensor(2, snr),
            OnlineSGD(1.0),
            tensor_state(m, r2),
            n,
            _TIMES,
            runs=len(m),
            key=jax.random.key(row + 2),
        )
        for row, snr in enumerate(_SNRS)
    ]
    limits, noise = _ode_paths(jnp.asarray(_SNRS), tensor_state(_WARM[:, 0], _WARM[:, 1]), n)
    deviations = np.stack([np.sqrt(rescaled_variance(snr, _TIMES)) for snr in _SNRS])
    m_ode, r2_ode = _plane(limits)
    data = xarray.Dataset(
        {
            "m": (("snr", "run", "time"), np.stack([_plane(each.state)[0] for each in runs])),
            "r2": (("snr", "run", "time"), np.stack([_plane(each.state)[1] for each in runs])),
            "m_ode": (("snr", "warm", "time"), m_ode),
            "r2_ode": (("snr", "warm", "time"), r2_ode),
            "m_deviation": (("snr", "warm", "time"), np.asarray(noise)),
            "rescaled_deviation": (("snr", "time"), deviations),
        },
        coords={"snr": list(_SNRS), "time": _TIMES},
        attrs={"n": n, "cold_runs": cold, "learning_rate": 1.0},
    )
    figure, panels = four_panels()
    for row, snr in enumerate(_SNRS):
        over_time, plane = panels[2 * row : 2 * row + 2]
        one = data.isel(snr=row)
        stable = [0.0] if snr < 1 else [-((snr - 1) ** 0.5), (snr - 1) ** 0.5]
        over_time.plot(_TIMES, one.m[:shown].T, color=BLUE, linewidth=0.8, alpha=0.8)
        over_time.plot([], [], color=BLUE, linewidth=0.8, label=f"SGD, {shown} runs")
        # Above the threshold the rescaled equation holds while the overlap is small.
        until = 10.0 if snr < 1 else 1.2
        early = until >= _TIMES
        spread(over_time, _TIMES[early], 0.0, deviations[row][early] / n**0.5, DARK, r"eq. (3.2), $\pm$ 2 deviations")
        for level in stable:
            over_time.axhline(level, color=RED, linewidth=1.6, label="stable" if level == stable[-1] else None)
        over_time.set(xlabel=CLOCK, ylabel=r"overlap $m$", ylim=(-0.7, 0.7) if snr > 1 else (-0.25, 0.25))
        warm = one.isel(run=slice(cold, None), time=_TIMES <= 1.5)
        plane.plot(one.m_ode.T, one.r2_ode.T, color=GREY, linewidth=2.6, alpha=0.8)
        plane.plot(warm.m.T, warm.r2.T, color=GREEN, linewidth=0.9)
        plane.plot(one.m[:shown].T, one.r2[:shown].T, color=BLUE, linewidth=0.6, alpha=0.7)
        plane.plot([], [], color=BLUE, linewidth=0.9, label="SGD, random starts")
        plane.plot([], [], color=GREEN, linewidth=0.9, label="SGD, warm starts")
        plane.plot([], [], color=GREY, linewidth=2.6, alpha=0.8, label="ODE, eq. (3.1)")
        cross(plane, stable, [1.0] * len(stable), label="stable")
        plane.set(xlabel=r"overlap $m$", ylabel=r"$r_\perp^2 = Q - M^2$", xlim=(-0.85, 0.85), ylim=(0, 2.0))
        for axes, letter in ((over_time, "ac"[row]), (plane, "bd"[row])):
            axes.set_title(rf"({letter})  $\lambda$ = {snr}")
            legend_above(axes)
    figure.suptitle(f"Matrix PCA, n = {n:,}, {10 * n:,} steps", x=0.01, ha="left", fontsize=12)
    return Reproduction(data, figure, _fig1_claims(data, n, cold))


@jax.jit
def _ode_paths(snrs, starts: State, n) -> tuple[State, Float[Array, "snr warm time"]]:
    """The ODE from each start at each snr, and the standard deviation of m about it in dimension n."""

    def one(snr, start):
        path = solve(linear_noise(SpikedTensor(2, snr), OnlineSGD(1.0), d=n), start, _TIMES)
        return path.state, path.standard_deviation[:, path.labels.index("M[0,0]")]

    return jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(snrs, starts)


def rescaled_variance(snr: float, times: np.ndarray) -> np.ndarray:
    """The variance of sqrt(n) m under eq. (3.2) for matrices, from N(0, 1) and r^2 = 1."""
    rate = 8 * (snr - 1)
    return np.exp(rate * times) + 8 * np.expm1(rate * times) / rate


def _plane(state: State) -> tuple[np.ndarray, np.ndarray]:
    """m and r^2."""
    m = np.asarray(state.M[..., 0, 0])
    return m, np.asarray(state.Q[..., 0, 0]) - m**2


def _fig1_claims(data, n: int, cold: int) -> tuple[Claim, ...]:
    variance = n * data.m[:, :cold].var("run")
    below, above = (np.searchsorted(_TIMES, np.array(at) - 1e-9) for at in ([1.0, 2.0, 10.0], [0.25, 0.5]))
    error = (2 / cold) ** 0.5
    predicted = data.rescaled_deviation.values**2
    ends = np.abs(data.m[1, :cold, -1])
    r2 = data.r2[:, :cold, -1].mean("run")
    early = _TIMES <= 1.0
    apart = data.m[:, cold:, early].values - data.m_ode[..., early].values
    return (
        Claim(
            "Fig. 1(a), stable Ornstein-Uhlenbeck process",
            "Below the threshold sqrt(n) m has the variance of eq. (3.2), at t = 1, 2 and 10: measured over predicted.",
            np.ones(3),
            variance[0, below].values / predicted[0, below],
            4 * error,
            remark=f"It ends at 1 / (1 - lambda) = 5. Tolerance: four standard errors, {cold} runs.",
        ),
        Claim(
            "Fig. 1(c), unstable Ornstein-Uhlenbeck process",
            "Above it the same while the overlap is small, at t = 0.25 and 0.5.",
            np.ones(2),
            variance[1, above].values / predicted[1, above],
            4 * error,
        ),
        Claim(
            "Fig. 1(c), (d), recovery",
            "Above the threshold runs end at m = +-(lambda - 1)^1/2 within 10 n steps: median of |m|.",
            0.2**0.5,
            float(ends.median()),
            0.05,
        ),
        Claim(
            "Fig. 1(b), (d), radius",
            "The radius stays at r^2 = 1 from random starts: its mean at the end, at both snrs.",
            np.ones(2),
            r2.values,
            0.03,
        ),
        Claim(
            "Fig. 1(b), (d), ODE",
            "From warm starts m follows the ODE: root mean square distance up to t = 1.",
            0.0,
            float(np.sqrt(np.mean(apart**2))),
            2 * float(np.sqrt(np.mean(data.m_deviation[..., early] ** 2))),
            remark="Tolerance: twice what the linear noise about the ODE gives in this dimension.",
        ),
    )
