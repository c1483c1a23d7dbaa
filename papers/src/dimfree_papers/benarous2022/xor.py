"""Section 5: the XOR mixture, its fixed points and which of them a Gaussian start reaches."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.csgraph

from dimfree import Claim, Mixture, State, ode, solve
from dimfree.limits import MeanLimit

from ..comparing import EXACT
from .conventions import cluster_margins, rates_at, ring_level, training, xor_limit

RIDGE = 0.05
# Sign of the readout, and the direction of the neuron, for each of the groups I_mu^+, I_mu^-, I_nu^+, I_nu^-. The
# source's I_nu^+ has m^nu = v < 0: its neurons point to -nu.
GROUPS = np.array([[1, 1, 0], [1, -1, 0], [-1, 0, -1], [-1, 0, 1]], float)


def claims() -> tuple[Claim, ...]:
    return (*_statistics(), *_threshold(), *_classification(), *_probability(), *_orders_of_limits())


def _statistics() -> tuple[Claim, ...]:
    return (
        Claim(
            "section 5, eq. (5.1)",
            "There are 22 summary statistics.",
            22,
            xor_limit(1.0, RIDGE).coordinates.size,
            0.0,
            remark="The w_i of (5.1) and of Proposition 5.1 are the v_i of the text.",
        ),
    )


def fixed_point(groups: tuple[int, ...], ridge: float = RIDGE, seed: int = 0) -> np.ndarray:
    """Statistics of a point of the set with neurons in these groups (0 is I_0), the split within a group at random."""
    share = np.random.default_rng(seed).uniform(0.5, 1.5, size=4)
    v, m = np.zeros(4), np.zeros((4, 2))
    for group in set(groups) - {0}:
        members = np.flatnonzero(np.asarray(groups) == group)
        amplitude = ring_level(ridge, 4) ** 0.5 * share[members] / np.linalg.norm(share[members])
        sign, *direction = GROUPS[group - 1]
        v[members] = sign * amplitude
        m[members] = np.outer(amplitude, direction)
    return np.concatenate([v, m.ravel(), np.zeros(10)])


@functools.cache
def partitions() -> tuple[tuple[int, ...], ...]:
    """Which group each of the four neurons is in, 0 being I_0: all 625 ways."""
    return tuple(itertools.product(range(5), repeat=4))


@functools.cache
def components() -> np.ndarray:
    """The connected component of each partition.

    The points of a partition have one amplitude for each neuron of a group, with a given sum of squares. An amplitude
    may vanish, which moves its neuron to I_0, as long as another neuron of the group is left.
    """
    number = {groups: index for index, groups in enumerate(partitions())}
    edges = []
    for groups, index in number.items():
        for neuron, group in enumerate(groups):
            if group and groups.count(group) > 1:
                edges.append((index, number[(*groups[:neuron], 0, *groups[neuron + 1 :])]))
    rows, columns = np.asarray(edges).T
    graph = scipy.sparse.coo_array((np.ones(len(edges)), (rows, columns)), shape=(len(number),) * 2)
    return scipy.sparse.csgraph.connected_components(graph, directed=False)[1]


@eqx.filter_jit
def _many_rates(limit: MeanLimit, vectors):
    return jax.vmap(lambda u: rates_at(limit, u))(vectors)


@eqx.filter_jit
def _many_jacobians(limit: MeanLimit, vectors):
    return jax.vmap(jax.jacfwd(lambda u: rates_at(limit, u)))(vectors)


def escape_rates(limit: MeanLimit, ridge: float = RIDGE) -> np.ndarray:
    """The fastest growth found next to a point of each partition.

    With a neuron in I_0 and a group without neurons, that of the neuron into the group; else the largest eigenvalue.
    """
    all_groups = partitions()
    points = np.stack([fixed_point(groups, ridge, seed) for seed, groups in enumerate(all_groups)])
    tiny, found = 1e-6, np.zeros(len(points))
    leaving = np.array([0 in groups for groups in all_groups])
    moved, neurons, signs = points[leaving], [], []
    for point, groups in zip(moved, [groups for groups in all_groups if 0 in groups], strict=True):
        neuron = groups.index(0)
        empty = next(group for group in range(1, 5) if group not in groups)
        sign, *direction = GROUPS[empty - 1]
        point[neuron] = tiny * sign
        point[4 + 2 * neuron : 6 + 2 * neuron] = tiny * np.asarray(direction)
        neurons.append(neuron)
        signs.append(sign)
    drift = np.asarray(_many_rates(limit, jnp.asarray(moved)))
    found[leaving] = drift[np.arange(len(moved)), neurons] / (tiny * np.asarray(signs))
    jacobians = np.asarray(_many_jacobians(limit, jnp.asarray(points[~leaving])))
    found[~leaving] = np.linalg.eigvals(jacobians).real.max(axis=-1)
    return found


def _threshold() -> tuple[Claim, ...]:
    v, m = np.array([1.0, 1.0, -1.0, -1.0]), GROUPS[:, 1:]
    tiny = 1e-6 * np.concatenate([v, m.ravel(), np.zeros(10)])
    growth = np.asarray(rates_at(xor_limit(np.inf, RIDGE), jnp.asarray(tiny)))[0] / tiny[0] + RIDGE
    ends = _ends()[1]
    return (
        Claim(
            "section 5, ridge 1/8",
            "Zero is unstable below ridge 1/8 and stable above: the ridge at which it turns.",
            0.125,
            float(growth),
            1e-5,
        ),
        Claim(
            "section 5, ridge above 1/8",
            "There zero is the only fixed point: largest |v| or |m| at the ends of 16 runs at ridge 0.13.",
            0.0,
            float(max(np.abs(np.asarray(ends.readout)).max(), np.abs(np.asarray(ends.M)).max())),
            1e-2,
            remark="They fall at rate 1/8 - ridge, slowly.",
        ),
    )


def _classification() -> tuple[Claim, ...]:
    limit = xor_limit(np.inf, RIDGE)
    points = np.stack([fixed_point(groups, seed=seed) for seed, groups in enumerate(partitions())])
    residuals = np.asarray(_many_rates(limit, jnp.asarray(points)))
    component, rates = components(), escape_rates(limit)
    number = component.max() + 1
    unstable = {int(c) for c, rate in zip(component, rates, strict=True) if rate > 1e-6}
    stable = sorted(set(range(number)) - unstable)
    singletons = {int(component[partitions().index(groups)]) for groups in itertools.permutations(range(1, 5))}
    full = np.array([0 not in groups for groups in partitions()])
    suboptimal = full & ~np.isin(component, stable)
    return (
        Claim(
            "section 5, conditions 1-5",
            r"Points with $v_i = \pm m_i$, $\sum v_i^2 = -\mathrm{logit}(4\alpha)$ in each group and R = 0 are fixed: "
            "the drift at one of each partition.",
            np.zeros_like(residuals),
            residuals,
            EXACT,
            remark="On the surfaces m = 0 in the sense of Filippov: the drift jumps there, towards them.",
        ),
        Claim(
            "section 5, partitions",
            "Each partition of the four neurons into five groups is a connected component.",
            len(partitions()),
            number,
            0.0,
            correction="The 625 partitions are pieces of 39 components: an amplitude within a group may fall to zero.",
            corrected=39,
        ),
        Claim(
            "section 5, components",
            "There are 39 connected components of fixed points.",
            39,
            number,
            0.0,
            remark="1 + 4 + 6 + 4 + 24 with 0, 1, 2, 3 and 4 groups occupied.",
        ),
        Claim(
            "section 5, stable components",
            "4! of them are stable, those of the permutations: their number, and how many of them are permutations.",
            [24, 24],
            [len(stable), len(singletons & set(stable))],
            0.0,
            remark="A component is unstable if something grows next to one of its points.",
        ),
        Claim(
            "section 5, unstable components",
            "The others are unstable: fraction of their partitions without I_0 at which something grows.",
            1.0,
            float(np.mean(rates[suboptimal] > 1e-9)),
            0.0,
            correction="Where no neuron is zero they attract, as the rings of Proposition 4.2 do; only their points "
            "with a neuron at zero are unstable.",
            corrected=0.0,
            remark=f"{suboptimal.sum()} of {(~np.isin(component, stable)).sum()} partitions.",
        ),
    )


def _sign_patterns() -> State:
    """Gaussian starts with small overlaps in which all signs of v_i, and of the overlap that decides, occur once."""
    draws = np.random.default_rng(7)
    signs = np.asarray(list(itertools.product((1, -1), repeat=8)))
    v = np.abs(draws.normal(size=(256, 4))) * signs[:, :4]
    m = 1e-3 * draws.normal(size=(256, 4, 2))
    decides = (v < 0).astype(int)  # a neuron of positive readout grows along mu, one of negative along nu
    size = np.abs(np.take_along_axis(m, decides[..., None], axis=2))
    np.put_along_axis(m, decides[..., None], size * signs[:, 4:, None], axis=2)
    return State(Q=np.eye(4) + m @ np.swapaxes(m, 1, 2), M=m, readout=v)


@functools.cache
def _ends() -> tuple[State, State]:
    """Where the ODE at infinite snr ends from the 256 starts, and from 16 of them at ridge 0.13: solved in one go."""
    problem = Mixture.xor(4, np.inf)
    starts = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[::16]]), _sign_patterns())
    ridges = jnp.where(jnp.arange(272) < 256, RIDGE, 0.13)
    times = jnp.where(jnp.arange(272) < 256, 150.0, 800.0)

    @jax.jit
    def end(ridge, time, start):
        return solve(ode(problem, training(ridge)), start, jnp.stack([0.0 * time, time]), steps=800).final

    ends = jax.vmap(end)(ridges, times, starts)
    return jax.tree.map(lambda leaf: leaf[:256], ends), jax.tree.map(lambda leaf: leaf[256:], ends)


def _probability() -> tuple[Claim, ...]:
    end = _ends()[0]
    right = cluster_margins(Mixture.xor(4, np.inf), end) > 0.5 * ring_level(RIDGE, 4)
    return (
        Claim(
            "section 5, probability 3/32",
            "A Gaussian start reaches a stable fixed point with probability 3/32, another with 29/32.",
            [3 / 32, 29 / 32],
            [float(np.mean(right.all(axis=1))), float(np.mean(~right.all(axis=1)))],
            0.002,
            remark="The ODE at infinite snr from overlaps of order 10^-3: 256 starts in which all signs occur equally "
            "often.",
        ),
    )


def _orders_of_limits() -> tuple[Claim, ...]:
    draws = np.random.default_rng(8)
    limit = xor_limit(100.0, RIDGE)
    upper = np.eye(4)[np.triu_indices(4)]
    at_zero = np.stack([np.concatenate([draws.normal(size=4), np.zeros(8), upper]) for _ in range(8)])
    moves = np.abs(np.asarray(_many_rates(limit, jnp.asarray(at_zero)))[:, 4:12]).max(axis=1)
    optimum = fixed_point((1, 2, 3, 4))
    away = [np.abs(np.asarray(rates_at(xor_limit(snr, RIDGE), jnp.asarray(optimum)))[:12]).max() for snr in (1e6, 1e8)]
    return (
        Claim(
            "section 5, probability from the limit law",
            "At finite snr the ODE, started from the limit of the initial law, does so too.",
            3 / 32,
            float(np.mean(moves > 1e-12)),
            0.0,
            correction="Never: the limit law has m = 0, which the ODE keeps. The probability is that of starts with "
            r"overlaps of order $N^{-1/2}$, after a time of order $\log N$, at large snr.",
            corrected=0.0,
            remark="From Q = 1, M = 0 and Gaussian readouts at snr 100: the fraction of starts whose overlaps move.",
        ),
        Claim(
            "footnote 5, XOR mixture",
            r"Here too the drift approaches its limit as 1/$\lambda$: exponent at an optimum.",
            1.0,
            float(-np.log10(away[1] / away[0]) / 2),
            0.05,
            correction=r"As $\lambda^{-1/2}$: each neuron is orthogonal to two clusters, and active on half of their "
            "inputs.",
            corrected=0.5,
        ),
    )
