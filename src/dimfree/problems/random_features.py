"""Random features of inputs with any spectrum: the least-squares problem that they are, at any size."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Complex, Float
from numpy.typing import ArrayLike

from ..components import LARGEST_MATRIX, check_rows, components_of, is_array, least_squares, without_frame
from ..errors import (
    InvalidInput,
    check_not_traced,
    finite_number,
    nonnegative_number,
    positive_integer,
    positive_number,
    real_array,
    require,
    shown,
)
from ..printing import as_call
from ..state import STUDENTS, TEACHERS, State
from .field_problem import FieldProblem
from .inputs import Spectrum
from .two_layer import TwoLayer

_ALONE = 256  # coordinates of the inputs that stand for themselves; later ones in panels
_PER_PANEL, _PANELS = 6, 2.0  # Gauss-Legendre nodes in a panel; panels in a factor e of ranks
_BLOCKS = 240  # of the deterministic equivalent, at every size, so that one program serves them all
_ON_PATH = 32  # Gauss-Legendre nodes of the integral over a block
_NEWTON = 10  # steps to a point of the curve
_AT_ONCE = 64  # points of it whose sums over the coordinates stay in the cache


class Coordinates(NamedTuple):
    """Coordinates of the inputs, those of nearly equal variance together.

    **Attributes:**

    - `variances`: one for each group; `numbers`: how many coordinates a group has.
    - `energies`: variance times squared target, summed over the group.
    - `trace`, `energy`: the same sums over coordinates of still smaller variance, which no feature tells apart.
    """

    variances: Float[np.ndarray, " groups"]
    numbers: Float[np.ndarray, " groups"]
    energies: Float[np.ndarray, " groups"]
    trace: float
    energy: float


class RandomFeatures(eqx.Module):
    r"""Least squares on random features: sizes of one model, each a problem and its start.

    Inputs $z \in \mathbb{R}^v$ have independent Gaussian coordinates of variances $\lambda_j$, the target is
    $\sum_j b_j z_j$, and the student is linear in $d$ features $x = W^\top z$, with W of independent entries N(0, 1/d):

    $$ \text{loss} = \tfrac12 \Big( \theta \cdot W^\top z - b \cdot z - \sqrt{\text{noise}}\, \zeta \Big)^2 . $$

    In the eigenbasis of the features' covariance this is a linear student and teacher on inputs with a spectrum. The
    part of the target that the features miss is independent of them, and acts as label noise.

    `features(d)` takes spectrum, teacher and miss from the deterministic equivalent of the resolvent, at any d: with
    $z(y) = y \big(1 - \tfrac1d \sum_j \lambda_j/(\lambda_j - y)\big)$ and $m = z/y$, the features' covariance has the
    resolvent $-m/z$, and the target has $\tfrac1m \sum_j \lambda_j b_j^2 / (\lambda_j - y)$ (Silverstein's equation);
    their integrals around parts of the real line are the numbers of eigenvalues there and what they have of the
    target. `features(d, key=key)` draws W and diagonalises, at a cost of $v d^2$.

    **Arguments:**

    - `variances`: $\lambda_j$, shape `(v,)`, at least one more than there are features; `target`: $b_j$, likewise.
    - `noise`: variance of the label noise.

    **Returns** from a call: the problem, on inputs of covariance d times that of the features, so that one step of
    `OnlineSGD(rate)` is $\theta \leftarrow \theta - \text{rate} \cdot s x$ at every size, and the start at
    $\theta = 0$.

    ??? example
        >>> import dimfree, numpy as np
        >>> features = dimfree.RandomFeatures(np.arange(1.0, 1001.0) ** -2, np.arange(1.0, 1001.0) ** -0.75)
        >>> problem, start = features(100)
        >>> round(float(problem.risk(start)), 4), round(float(problem.irreducible_risk), 6)
        (0.5634, 0.000262)

    Paquette, Paquette, Xiao & Pennington 2024.
    """

    variances: Float[np.ndarray, " v"]
    target: Float[np.ndarray, " v"]
    noise: float

    def __init__(self, variances: ArrayLike | Array, target: ArrayLike | Array, noise: float = 0.0):
        check_not_traced("RandomFeatures", variances=variances, target=target, noise=noise)
        variances, target = (
            np.atleast_1d(np.asarray(real_array(given, name), float))
            for given, name in ((variances, "variances"), (target, "target"))
        )
        require(variances > 0, f"variances = {shown(variances)} was given; they must be positive.")
        if variances.ndim != 1 or variances.shape != target.shape:
            raise InvalidInput(
                f"variances has shape {variances.shape} and target {target.shape}; give as many of the one as of the "
                "other."
            )
        order = np.argsort(-variances, kind="stable")
        self.variances, self.target = variances[order], target[order]
        nonnegative_number(noise, "noise", meaning=" (it is the variance of the label noise)")
        self.noise = float(noise)

    @classmethod
    def from_data(cls, X: ArrayLike, labels: ArrayLike, *, progress: bool = False) -> "RandomFeatures":
        r"""Random features of rows of data, whose labels are to be learned.

        The coordinates are the principal components of the rows, their target is the least-squares fit of the labels,
        and the variance of the residuals is the noise. Rows and labels are centred. What is left out is that the rows
        are not Gaussian and that residuals depend on them: compare with SGD on the rows.

        **Arguments:**

        - `X`: shape `(n, d)`, with $d \le 4096$; an array in memory or in a file, which is read
          in batches, or a data frame of numbers.
        - `labels`: shape `(n,)`, n above d + 1.
        - `progress`: whether to say what it will cost and show how far it is.

        **Returns:** `RandomFeatures` of the directions that have a variance.

        ??? example
            >>> import dimfree, numpy as np
            >>> rows = np.random.default_rng(0).normal(size=(20_000, 3)) * [3.0, 1.0, 0.1]
            >>> features = dimfree.RandomFeatures.from_data(rows, rows[:, 0])
            >>> features.variances.round(1).tolist(), abs(features.target).round(2).tolist()
            ([9.0, 1.0, 0.0], [1.0, 0.0, 0.0])
        """
        check_not_traced("RandomFeatures.from_data", X=X, labels=labels)
        X = without_frame(X, "X")
        if not is_array(X):
            raise InvalidInput(
                f"X = {shown(X)} was given; rows are read several times, so pass an array of shape (n, d), in memory "
                "or in a file (np.load(..., mmap_mode='r'))."
            )
        rows, d = check_rows(X, "X")
        if d > LARGEST_MATRIX:
            raise InvalidInput(f"X has rows of {d:,} numbers; take at most {LARGEST_MATRIX:,}.")
        numbers = np.asarray(real_array(without_frame(labels, "labels"), "labels"))
        if numbers.shape != (rows,) or not np.isfinite(numbers).all():
            raise InvalidInput(
                f"labels has shape {numbers.shape}, for {rows} rows; give one finite number for each row."
            )
        if rows <= d + 1:
            raise InvalidInput(
                f"{rows} rows of {d} numbers were given: least squares fits any labels then. Take more rows."
            )
        found = components_of(X, "X", 1, progress=progress)
        weights, residuals = least_squares(X, numbers, found)
        kept = found.eigenvalues > 1e-12 * found.eigenvalues[0]
        target = (found.directions.T @ weights)[kept]
        return cls(found.eigenvalues[kept], target, noise=float(np.mean(residuals**2)))

    def __repr__(self) -> str:
        return f"RandomFeatures({len(self.variances)} coordinates, noise={self.noise:g})"

    @property
    def sources(self) -> tuple[str, ...]:
        return ("paquette2024",)

    @property
    def irreducible_risk(self) -> float:
        """Half the variance of the label noise: what is left with infinitely many features."""
        return self.noise / 2

    @property
    def number(self) -> float:
        """How many coordinates the inputs have: there must be fewer features."""
        return len(self.variances)

    def coordinates(self) -> Coordinates:
        """The coordinates of the inputs, in groups."""
        number = len(self.variances)
        ends = np.unique(
            np.concatenate([np.arange(min(_ALONE, number)), np.geomspace(1, number, 2048).astype(int) - 1])
        )
        starts = np.concatenate([[0], ends[:-1] + 1])
        numbers = np.diff(np.append(starts, number)).astype(float)
        variances = np.add.reduceat(self.variances, starts) / numbers
        return Coordinates(variances, numbers, np.add.reduceat(self.variances * self.target**2, starts), 0.0, 0.0)

    def drawn(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Variances and targets of the coordinates that so many features are drawn of."""
        return self.variances, self.target

    def __call__(self, size: int, *, key: Array | None = None) -> tuple[FieldProblem, State]:
        size = positive_integer(size, "size")
        if size >= self.number:
            raise InvalidInput(f"{size} features of {self.number} coordinates were asked for; take fewer features.")
        if key is None:
            eigenvalues, numbers, energies, missed = deterministic_equivalent(self.coordinates(), size)
        else:
            eigenvalues, energies, missed = _diagonalised(*self.drawn(size), size, key)
            numbers = np.ones(size)
        spectrum = Spectrum(size * eigenvalues, numbers / numbers.sum())
        problem = TwoLayer(1, 1, activation="linear", noise=missed + self.noise).with_inputs(spectrum)
        nothing = jnp.zeros((len(eigenvalues), 1, 1))
        teacher = jnp.asarray(energies / (size * eigenvalues))[:, None, None]
        overlaps = {(STUDENTS, STUDENTS): nothing, (STUDENTS, TEACHERS): nothing, (TEACHERS, TEACHERS): teacher}
        return problem, State.of(overlaps, None)


_MOST_DRAWN = 10**7  # features


class PowerLawFeatures(RandomFeatures):
    r"""[`RandomFeatures`] of infinitely many coordinates with power laws: variances $j^{-2a}$, targets $j^{-b}$.

    The risk of SGD over steps r, at sizes d, is a sum of power laws, and so is the least risk for a given compute
    $f = d r$, with the size that has it: for $a > 1/2$ (`predicted`)

    | | size | risk |
    | --- | --- | --- |
    | $b < 1/2$ | $f^{1/(2a+1)}$ | $f^{-(2a+2b-1)/(2a+1)}$ |
    | $1/2 < b < a$ | $f^{b/(a+b)}$ | $f^{-(2a+2b-1)/(2(a+b))}$ |
    | $b > a$ | $f^{1/2}$ | $f^{-1 + 1/(4a)}$ |

    **Arguments:**

    - `input_exponent`: a, above 1/2; `target_exponent`: b, with $a + b > 1/2$.
    - `noise`: variance of the label noise.
    - `coordinates_drawn`: for features that are drawn, the number of coordinates per feature.

    ??? example
        >>> import dimfree
        >>> features = dimfree.PowerLawFeatures(input_exponent=1.0, target_exponent=0.75)
        >>> {name: round(exponent, 3) for name, exponent in features.predicted.items()}
        {'size': 0.429, 'compute': -0.714}

    Paquette, Paquette, Xiao & Pennington 2024, Table 1.
    """

    input_exponent: float
    target_exponent: float
    coordinates_drawn: int = eqx.field(static=True)

    def __init__(
        self, input_exponent: float, target_exponent: float, noise: float = 0.0, *, coordinates_drawn: int = 10
    ):
        check_not_traced(
            "PowerLawFeatures", input_exponent=input_exponent, target_exponent=target_exponent, noise=noise
        )
        positive_number(input_exponent, "input_exponent")
        finite_number(target_exponent, "target_exponent")
        a, b = float(input_exponent), float(target_exponent)
        require(a > 0.5, f"input_exponent = {a:g} was given; up to 1/2 the variances j^-2a have no sum: take more.")
        require(
            a + b > 0.5, f"target_exponent = {b:g} was given; the target is infinite unless it exceeds {0.5 - a:g}."
        )
        self.input_exponent, self.target_exponent = a, b
        self.coordinates_drawn = positive_integer(coordinates_drawn, "coordinates_drawn")
        nonnegative_number(noise, "noise", meaning=" (it is the variance of the label noise)")
        self.noise = float(noise)
        self.variances, self.target = np.empty(0), np.empty(0)  # there are infinitely many

    def __repr__(self) -> str:
        return as_call(self, input_exponent=self.input_exponent, target_exponent=self.target_exponent, noise=self.noise)

    @property
    def predicted(self) -> dict[str, float]:
        """The exponents in the compute: of the best size, and (`compute`) of its risk."""
        a, b = self.input_exponent, self.target_exponent
        if b < 0.5:
            return {"size": 1 / (2 * a + 1), "compute": -(2 * a + 2 * b - 1) / (2 * a + 1)}
        if b < a:
            return {"size": b / (a + b), "compute": -(2 * a + 2 * b - 1) / (2 * (a + b))}
        return {"size": 0.5, "compute": -1 + 1 / (4 * a)}

    @property
    def number(self) -> float:
        return np.inf

    def drawn(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        ranks = np.arange(1.0, self.coordinates_drawn * positive_integer(size, "size", maximum=_MOST_DRAWN) + 1)
        return ranks ** (-2 * self.input_exponent), ranks**-self.target_exponent

    def coordinates(self) -> Coordinates:
        a, b = self.input_exponent, self.target_exponent
        last = 1e16 ** (1 / (2 * a)) * 1e7  # beyond it variances are far below the eigenvalues of ten million features
        panels = np.geomspace(_ALONE + 0.5, last, int(np.log(last / _ALONE) * _PANELS) + 2)
        nodes, weights = np.polynomial.legendre.leggauss(_PER_PANEL)
        middle, half = (np.log(panels[1:]) + np.log(panels[:-1])) / 2, np.diff(np.log(panels)) / 2
        ranks = np.exp(middle[:, None] + half[:, None] * nodes).ravel()
        ranks = np.concatenate([np.arange(1.0, _ALONE + 1), ranks])
        numbers = np.concatenate([np.ones(_ALONE), (half[:, None] * weights).ravel() * ranks[_ALONE:]])
        variances = ranks ** (-2 * a)
        energies = numbers * ranks ** (-2 * a - 2 * b)
        return Coordinates(
            variances,
            numbers,
            energies,
            last ** (1 - 2 * a) / (2 * a - 1),
            last ** (1 - 2 * a - 2 * b) / (2 * a + 2 * b - 1),
        )


def _diagonalised(variances: np.ndarray, target: np.ndarray, size: int, key: Array):
    """Eigenvalues of drawn features, what each has of the target, and what all of them miss of it."""
    W = np.asarray(jax.random.normal(key, (len(variances), size))) / size**0.5
    scaled = np.sqrt(variances)[:, None] * W
    eigenvalues, vectors = np.linalg.eigh(scaled.T @ scaled)
    energies = (vectors.T @ (W.T @ (variances * target))) ** 2 / eigenvalues
    order = np.argsort(-eigenvalues)
    return eigenvalues[order], energies[order], max(0.0, float(variances @ target**2 - energies.sum()))


def deterministic_equivalent(coordinates: Coordinates, size: int):
    r"""Eigenvalues of so many features in blocks, how many there are and what they have of the target, and the miss.

    The real line is the image of a curve in the upper half plane of y, one point for each $|y|$: that where
    $\tfrac1d \sum_j \lambda_j^2 / |\lambda_j - y|^2 = 1$, or the real line itself in gaps of the spectrum. Integrals
    over parts of the spectrum are integrals between two points of the curve, along any way above it.

    **Returns** arrays over blocks, the largest eigenvalues first, and a number.
    """
    curve = _curve(coordinates, size)
    start, end = curve[:-1, None], curve[1:, None]
    nodes, weights = np.polynomial.legendre.leggauss(_ON_PATH)
    # More nodes near the ends, which may be close to poles.
    even = (nodes + 1) / 2
    part, growth = even**3 * (10 - 15 * even + 6 * even**2), 30 * even**2 * (1 - even) ** 2
    length = np.real(end - start)
    # Straight in the logarithm of y, and bent upwards, away from the poles on the real line.
    logarithm = start + part * (end - start) - 2j * part * (1 - part) * length
    along = (end - start) - 2j * (1 - 2 * part) * length
    y = np.exp(logarithm)
    shares, squares, targets = np.concatenate(
        [_sums(coordinates, some) for some in np.array_split(y.ravel(), -(-y.size // _AT_ONCE))], axis=1
    ).reshape(3, *y.shape)
    share, slope = (shares - coordinates.trace / y) / size, 1 - squares / size
    of_target = targets - coordinates.energy / y
    measure = slope * y * along * growth * weights / 2

    def inside(resolvent: Complex[np.ndarray, "blocks nodes"]) -> Float[np.ndarray, " blocks"]:
        return -np.sum(resolvent * measure, axis=-1).imag / np.pi

    numbers, totals, energies = inside(-size / y), inside(-size * (1 - share)), inside(of_target / (1 - share))
    # Above and below the spectrum, and in gaps, there is nothing but rounding; that must not be a large eigenvalue.
    empty = numbers < 1e-9 * size
    means = totals / np.where(empty, 1.0, numbers)
    eigenvalues = np.where(empty, means[~empty].min(), means)
    numbers, energies = np.where(empty, 1e-12 * size, numbers), np.where(empty, 0.0, np.maximum(energies, 0.0))
    return eigenvalues, numbers, energies, _missed(coordinates, size)


def _sums(coordinates: Coordinates, y: Complex[np.ndarray, " n"]) -> Complex[np.ndarray, "3 n"]:
    r"""The sums of $\lambda/(\lambda - y)$, of its square and of energy$/(\lambda - y)$ over the coordinates."""
    variances, numbers, energies = coordinates[:3]
    across, height = variances - np.real(y)[:, None], np.imag(y)[:, None]
    inverse = 1 / (across**2 + height**2)
    along, up = across * inverse, height * inverse  # real and imaginary part of 1/(variance - y)
    weights = np.stack([numbers * variances, energies], axis=1)
    first = along @ weights + 1j * (up @ weights)
    second = (along**2 - up**2) @ (numbers * variances**2) + 2j * ((along * up) @ (numbers * variances**2))
    return np.stack([first[:, 0], second, first[:, 1]])


def _missed(coordinates: Coordinates, size: int) -> float:
    """What the features miss of the target: the atom at zero, from the negative y with z = 0."""
    variances, numbers, energies, trace, energy = coordinates

    def above(logarithm: float) -> float:
        y = np.exp(logarithm)
        return float(numbers @ (variances / (variances + y)) + trace / y) - size

    y = np.exp(_zero(above, np.log(variances[-1]) - 60, float(np.log(trace + variances @ numbers)) + 60))
    return float(y * (energies @ (1 / (variances + y))) + energy)


def _zero(function: Callable[[float], float], low: float, high: float) -> float:
    return float(scipy.optimize.root_scalar(function, bracket=(low, high), method="brentq").root)


def _curve(coordinates: Coordinates, size: int) -> Complex[np.ndarray, " ends"]:
    """Logarithms of the points of the curve where blocks end, from the largest eigenvalues down."""
    variances, numbers = coordinates.variances, coordinates.numbers

    def excess(radii, versines):
        away = (variances - radii[:, None]) ** 2 + 2 * (radii * versines)[:, None] * variances
        return (variances**2 / away) @ numbers / size - 1

    def angles_of(radii):
        r"""Zero in gaps; pi, nearly, below the spectrum.

        The sum is of $\lambda^2 / ((\lambda - r)^2 + 2 r \lambda h)$ with h = 1 - cos(angle). Its inverse is concave
        and increasing in h, so that Newton's method comes from below and does not overshoot.
        """
        versines, apart = np.full(len(radii), 2.0), (variances - radii[:, None]) ** 2
        growth = 2 * radii[:, None] * variances
        for _ in range(_NEWTON):
            terms = variances**2 / (apart + growth * versines[:, None])
            total = terms @ numbers
            slope = (terms**2 * growth / variances**2) @ numbers
            # One over the sum is to be one over the size.
            versines = np.clip(versines + total * (total / size - 1) / slope, 0.0, 2.0)
        return np.where(versines < 1e-18, 0.0, 2 * np.arcsin(np.sqrt(versines / 2)))

    top = 4 * (variances[0] + (variances @ numbers + coordinates.trace) / size)
    on_the_left = np.array([2.0])
    lowest = _zero(lambda log: float(excess(np.exp([log]), on_the_left)[0]), np.log(variances[-1]) - 30, np.log(top))
    top, lowest = np.log(top), lowest - 1e-3
    width = (top - lowest) / _BLOCKS
    ends = [top]
    if 2 / size**0.5 < width:  # else eigenvalues that stand apart are themselves wider than a block
        spacings = -np.diff(np.log(variances))
        between = np.exp(-spacings / 2) * variances[:-1]
        gaps = np.log(between[excess(between, np.zeros(len(between))) < -0.5])
        apart = np.log(between[: np.argmax(np.append(spacings, 0.0) < width)])
        ends += [gap for gap in apart if gap in gaps]
        # Where gaps are closer, a block ends in the gap that is nearest to where it should end, if there is one.
        rest = np.linspace(ends[-1], lowest, _BLOCKS + 2 - len(ends))[1:]
        if len(gaps):
            nearest = gaps[np.argmin(np.abs(rest[:, None] - gaps), axis=1)]
            close = np.abs(nearest - rest) < 0.6 * (ends[-1] - lowest) / len(rest)
            rest = np.where(close, nearest, rest)
    else:
        rest = np.linspace(top, lowest, _BLOCKS + 1)[1:]
    ends = np.concatenate([ends, rest])
    return ends + 1j * angles_of(np.exp(ends))
