"""Figures 2 and 3: which classifiers SGD ends at on the mixtures, and its diffusion on the rings."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from dimfree import Claim, Mixture, Reproduction, State, sde, simulate, solve
from dimfree.papers import Size

from ..drawing_style import BLUE, DARK, GREY, RED, in_style
from . import binary_rings, xor_rings
from .conventions import CLOCK, cluster_margins, gaussian_starts, ring_level, state_of, training
from .drawing import arc, cross, four_panels, fractions, legend_above, spread

_RIDGE = 0.1


@dataclasses.dataclass(frozen=True)
class _Experiment:
    """Runs from Gaussian starts, and runs and paths of the diffusion from one point of a ring."""

    ends: State
    optimal: np.ndarray
    on_ring: np.ndarray  # overlaps (run, time, neuron, direction), rescaled
    diffusion: np.ndarray  # the same of the SDE at infinite snr
    ring_times: np.ndarray


def _run(
    problem: Mixture, at_infinity: Mixture, d: int, runs: int, time: float, variance: float, ring: State
) -> _Experiment:
    """The same number of runs and of saved times in both simulations, so that they are compiled once."""
    width, directions = problem.width, problem.teacher_width
    sgd = training(_RIDGE)
    times, ring_times = np.linspace(0.0, time, 61), np.linspace(0.0, 30.0, 61)
    starts = gaussian_starts(runs, d, width, directions, variance, seed=1)
    ends = simulate(problem, sgd, starts, d, times, runs=runs, key=jax.random.key(2)).final
    many = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], runs, axis=0), ring)
    around = simulate(problem, sgd, many, d, ring_times, runs=runs, key=jax.random.key(3))
    paths = solve(sde(at_infinity, sgd, d=d), ring, ring_times, runs=runs, steps=600, key=jax.random.key(4))
    optimal = cluster_margins(problem, ends).min(axis=-1) > 0.5 * ring_level(_RIDGE, problem.inputs.components)
    centre = np.asarray(ring.M)
    return _Experiment(
        ends,
        optimal,
        d**0.5 * (np.asarray(around.state.M) - centre),
        d**0.5 * (np.asarray(paths.state.M) - centre),
        ring_times,
    )


def ring_deviation(times: np.ndarray, amplitude: float, level: float, clusters: int) -> np.ndarray:
    r"""The deviation of a rescaled overlap under Proposition 4.3 (two clusters) or 5.1 (four), signs corrected.

    Noise moves v and m of a ring together, along the amplitudes $a$, and the drift brings them back at rate
    $2 (\alpha - c \alpha^2) C_\alpha$ for c clusters.
    """
    rate = 2 * (_RIDGE - clusters * _RIDGE**2) * level
    noise = (clusters - 1) * _RIDGE**2 * amplitude**2
    return np.sqrt(-noise * np.expm1(-2 * rate * times) / (2 * rate))


def _dataset(found: _Experiment, **attributes):
    import xarray

    axes = ("run", "time", "neuron", "direction")
    return xarray.Dataset(
        {
            "end_m": (("run", "neuron", "direction"), np.asarray(found.ends.M)),
            "end_v": (("run", "neuron"), np.asarray(found.ends.readout)),
            "optimal": ("run", found.optimal),
            "rescaled_m": (axes, found.on_ring),
            "rescaled_m_sde": (axes, found.diffusion),
        },
        coords={"time": found.ring_times},
        attrs={"ridge": _RIDGE, "learning_rate": 1.0, **attributes},
    )


def _ends(axes, ends: np.ndarray, radius: float, stable: np.ndarray, names: tuple[str, str]) -> None:
    """Where runs end in the plane of the overlaps of two neurons, with the rings and the stable points."""
    axes.plot(ends[:, 0], ends[:, 1], ".", color=BLUE, markersize=5, label=f"ends of {len(ends)} runs")
    for begin, label in ((0, r"rings, $\lambda = \infty$"), (2, None)):
        arc(axes, radius, begin, label)
    cross(axes, radius * stable[:, 0], radius * stable[:, 1], r"stable, $\lambda = \infty$")
    axes.set(xlabel=rf"overlap {names[0]}", ylabel=rf"overlap {names[1]}", aspect="equal")


def _along_ring(axes, a: np.ndarray) -> None:
    """The direction in which the first two neurons diffuse."""
    axes.axline((0, 0), slope=a[1] / a[0], color=RED, linewidth=1.2, linestyle="--", label=r"direction $(a_1, a_2)$")


def _pair(axes, data, first: tuple[int, int], second: tuple[int, int], names: tuple[str, str]) -> None:
    """Paths in the plane of two rescaled overlaps: SGD, and the diffusion."""
    for name, colour, label, width in (
        ("rescaled_m_sde", GREY, r"SDE, $\lambda = \infty$", 1.6),
        ("rescaled_m", BLUE, "SGD", 0.8),
    ):
        paths = data[name].values[:8]
        axes.plot(paths[:, :, *first].T, paths[:, :, *second].T, color=colour, linewidth=width, alpha=0.8)
        axes.plot([], [], color=colour, linewidth=width, label=f"{label}, 8 paths")
    axes.set(xlabel=names[0], ylabel=names[1])


@in_style
def fig2(size: Size) -> Reproduction:
    r"""Binary mixture, snr 100 and ridge 0.1: (a) which classifier runs end at, (b) where, (c, d) diffusion on a ring.

    Full size: N = 250 and 200 runs, as in the source, until t = 100; quick: 100 runs until t = 40. In (c) and (d) runs
    start at a point of the ring, at 30 degrees; the diffusion is that of Proposition 4.3 with its sign corrected.
    """
    d, runs, time = (250, 200, 100.0) if size == "full" else (250, 100, 40.0)
    snr, level = 100.0, ring_level(_RIDGE, 2)
    a = binary_rings.ring_point(np.pi / 6, _RIDGE)
    ring = state_of(a, a[:, None], np.eye(2) / snr)
    found = _run(Mixture.binary(2, snr), Mixture.binary(2, np.inf), d, runs, time, 1 / snr, ring)
    data = _dataset(found, d=d, snr=snr, time=time, ring=a)
    figure, panels = four_panels()
    fractions(panels[0], float(data.optimal.mean()), 0.5, runs)
    _ends(panels[1], data.end_m.values[..., 0], level**0.5, np.array([[1, -1], [-1, 1]]), ("$m_1$", "$m_2$"))
    panels[1].legend(loc="center", fontsize=9)
    deviation = ring_deviation(data.time.values, a[0], level, clusters=2)
    panels[2].plot(data.time, data.rescaled_m.values[:10, :, 0, 0].T, color=BLUE, linewidth=0.8)
    panels[2].plot([], [], color=BLUE, linewidth=0.8, label="SGD, 10 runs")
    spread(panels[2], data.time.values, 0.0, deviation, DARK, r"SDE, $\lambda = \infty$, $\pm$ 2 deviations")
    panels[2].set(xlabel=CLOCK, ylabel=r"$\sqrt{N}(m_1 - a_1)$")
    legend_above(panels[2])
    _pair(panels[3], data, (0, 0), (1, 0), (r"$\sqrt{N}(m_1 - a_1)$", r"$\sqrt{N}(m_2 - a_2)$"))
    _along_ring(panels[3], a)
    legend_above(panels[3])
    _finish(figure, panels, f"Binary mixture, N = {d}, $\\lambda$ = {snr:g}, $\\alpha$ = {_RIDGE}")
    return Reproduction(data, figure, _fig2_claims(data, a, level, runs))


def _finish(figure, panels, title: str) -> None:
    for axes, letter in zip(panels, "abcd", strict=True):
        axes.set_title(f"({letter})")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)


def _along(samples: np.ndarray, a: np.ndarray) -> list[float]:
    """How far two overlaps spread along (a_1, a_2): cosine of their main direction, and deviation across over along."""
    values, vectors = np.linalg.eigh(np.cov(samples.T))
    return [float(abs(vectors[:, -1] @ a[:2]) / np.linalg.norm(a[:2])), float(max(values[0] / values[1], 0.0) ** 0.5)]


def _fig2_claims(data, a: np.ndarray, level: float, runs: int) -> tuple[Claim, ...]:
    ends, optimal = data.end_m.values[..., 0], data.optimal.values
    points = np.abs(ends[optimal])
    radii = np.sum(ends[~optimal] ** 2, axis=1)
    last = data.rescaled_m.values[:, -1, :, 0]
    deviation = ring_deviation(data.time.values[-1:], a[0], level, clusters=2)[0]
    return (
        Claim(
            "Fig. 2(a)",
            "Half of the runs end at the optimal classifier.",
            0.5,
            float(optimal.mean()),
            4 * (0.25 / runs) ** 0.5,
            remark="Tolerance: four standard errors.",
        ),
        Claim(
            "Fig. 2(b)",
            "Runs end at the fixed points of infinite snr: |m| of optimal ones, and m_1^2 + m_2^2 of the others.",
            [level**0.5, level],
            [float(np.median(points)), float(np.median(radii))],
            0.05,
        ),
        Claim(
            "Fig. 2(c)",
            "On a ring m_1 diffuses as Proposition 4.3 has it, sign corrected: deviation at t = 30 over the predicted.",
            1.0,
            float(last[:, 0].std(ddof=1) / deviation),
            4 / (2 * runs) ** 0.5,
            remark="Proposition 4.3 has infinite snr; here snr = 100. Tolerance: four standard errors.",
        ),
        Claim(
            "Fig. 2(d), rank 1",
            "On a ring (m_1, m_2) diffuses along (a_1, a_2): cosine, and the deviation across over that along.",
            [1.0, 0.0],
            _along(last, a),
            0.25,
        ),
    )


@in_style
def fig3(size: Size) -> Reproduction:
    r"""XOR mixture, snr 1000 and ridge 0.1: (a) which classifier runs end at, (b) where, (c, d) diffusion on rings.

    Full size: N = 250 and 200 runs, as in the source, until t = 300; quick: N = 100 and 100 runs until t = 150. In (c)
    and (d) runs start where neurons 1, 2 and 3, 4 share a ring each; (d) has $m_3^\nu$ where the caption has
    $m_3^\mu$, which does not diffuse. The diffusion is that of Proposition 5.1 with its sign corrected; at finite snr
    SGD is off it by a drift of order $(N / \text{snr})^{1/2}$.
    """
    d, runs, time = (250, 200, 300.0) if size == "full" else (100, 100, 150.0)
    snr, level = 1000.0, ring_level(_RIDGE, 4)
    a = xor_rings.ring_point(np.pi / 6, np.pi / 4, _RIDGE)
    m = xor_rings.statistics_at(a)[4:12].reshape(4, 2)
    found = _run(Mixture.xor(4, snr), Mixture.xor(4, np.inf), d, runs, time, 1.0, state_of(a, m, np.eye(4) / snr))
    data = _dataset(found, d=d, snr=snr, time=time, ring=a)
    figure, panels = four_panels()
    fractions(panels[0], float(data.optimal.mean()), 3 / 32, runs)
    # One neuron or both may be on nu instead, or one on each sign of mu.
    stable = np.array([[1, -1], [-1, 1], [1, 0], [-1, 0], [0, 1], [0, -1], [0, 0]])
    _ends(panels[1], data.end_m.values[..., 0], level**0.5, stable, (r"$m_1^\mu$", r"$m_2^\mu$"))
    panels[1].set(xlim=(-1.2, 1.2), ylim=(-0.85, 0.85))
    names = [rf"$\sqrt{{N}}(m_{i}^\{x} - a_{i})$" for i, x in ((1, "mu"), (2, "mu"), (3, "nu"))]
    _pair(panels[2], data, (0, 0), (1, 0), (names[0], names[1]))
    _along_ring(panels[2], a)
    _pair(panels[3], data, (0, 0), (2, 1), (names[0], names[2]))
    for axes in panels[1:]:
        legend_above(axes)
    _finish(figure, panels, f"XOR mixture, N = {d}, $\\lambda$ = {snr:g}, $\\alpha$ = {_RIDGE}")
    return Reproduction(data, figure, _fig3_claims(data, a, level, runs))


def _fig3_claims(data, a: np.ndarray, level: float, runs: int) -> tuple[Claim, ...]:
    optimal, last = data.optimal.values, data.rescaled_m.values[:, -1]
    pair = np.corrcoef(last[:, 0, 0], last[:, 2, 1])[0, 1]
    ends = np.sort(np.abs(data.end_m.values[optimal]).max(axis=-1), axis=None)
    predicted = 3 / 32
    return (
        Claim(
            "Fig. 3(a)",
            "3/32 of the runs end at the optimal classifier.",
            predicted,
            float(optimal.mean()),
            4 * (predicted * (1 - predicted) / runs) ** 0.5,
            remark="Tolerance: four standard errors.",
        ),
        Claim(
            "Fig. 3(b)",
            "Optimal runs end at the stable fixed points of infinite snr: median of the larger overlap of a neuron.",
            level**0.5,
            float(np.median(ends)),
            0.1,
        ),
        Claim(
            "Fig. 3(c)",
            "Within a ring (m_1, m_2) diffuses along (a_1, a_2): cosine, and the deviation across over that along.",
            [1.0, 0.0],
            _along(last[:, :2, 0], a),
            0.25,
        ),
        Claim(
            "Fig. 3(d)",
            "Two rings diffuse in two dimensions: 1 if the correlation of m_1^mu and m_3^nu is far from 1 in size.",
            1.0,
            float(abs(pair) < 0.8),
            0.0,
            remark=f"It is {pair:.2f}; Proposition 5.1 gives noise of correlation 1/3, with the sign of -a_1 a_3.",
        ),
    )
