"""SGD on a user's own data: the spectrum of rows, the sets that SGD draws from, and the verdict with its causes."""

import dataclasses
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import scipy.sparse

import dimfree
from dimfree import InvalidInput, Spectrum, components
from dimfree.data import comparison, distances, sets
from dimfree.printing import Progress
from dimfree.state import STUDENTS, TEACHERS
from refusals import assert_refused

ERF, SGD, KEY = dimfree.TwoLayer(1, activation="erf"), dimfree.OnlineSGD(0.3), jax.random.key(0)
LABELS = dimfree.TwoLayer(1, activation="linear", teacher_activation="linear")


def rows_of(n=500, d=12, seed=0):
    """Rows that are neither centred nor isotropic nor Gaussian."""
    generator = np.random.default_rng(seed)
    return (generator.exponential(size=(n, d)) * np.linspace(0.3, 3, d)) @ generator.normal(size=(d, d)) + 50.0


def found_in(rows, leading=5):
    return components.components_of(rows, "rows", leading, progress=False)


def no_progress():
    return Progress("", 1, shown=False, warns=False)


# The spectrum.


def test_the_spectrum_of_rows_is_that_of_their_covariance_however_they_are_given(tmp_path):
    rows = rows_of()
    expected = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1]
    file = np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float64, rows.shape)
    file[:] = rows
    in_file = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for given in (rows, jnp.asarray(rows), in_file, iter([rows[:7], rows[7:8], rows[8:]]), [rows[:100], rows[100:]]):
        found = Spectrum.from_data(given)
        np.testing.assert_allclose(found.eigenvalues, expected, rtol=1e-9)
        np.testing.assert_allclose(found.fractions, 1 / 12, rtol=1e-12)


def test_whole_numbers_and_far_means_lose_no_digits():
    pixels = np.random.default_rng(1).integers(0, 255, size=(300, 9)).astype(np.uint8)
    exact = np.linalg.eigvalsh(np.cov(pixels.astype(float).T, bias=True))[::-1]
    np.testing.assert_allclose(Spectrum.from_data(pixels).eigenvalues, exact, rtol=1e-12)
    # Batches that all lie far from zero: the squares alone would have lost all digits.
    np.testing.assert_allclose(Spectrum.from_data(pixels + 1e8).eigenvalues, exact, rtol=1e-6)


def test_fewer_blocks_keep_the_trace_and_the_largest_eigenvalue():
    rows = rows_of(d=40)
    whole, merged = Spectrum.from_data(rows), Spectrum.from_data(rows, blocks=8)
    assert merged.blocks == 8
    np.testing.assert_allclose(merged.trace, rows.var(axis=0).mean(), rtol=1e-10)
    np.testing.assert_allclose(merged.eigenvalues[0], whole.eigenvalues[0], rtol=1e-10)


def test_many_dimensions_have_their_leading_eigenvalues_and_the_rest_of_the_trace(monkeypatch):
    monkeypatch.setattr(components, "LARGEST_MATRIX", 20)
    monkeypatch.setattr(components, "_NUMBERS", 60 * 50)
    generator = np.random.default_rng(2)
    rows = 5 + generator.normal(size=(3_000, 60)) * np.arange(1.0, 61) ** -1.5
    exact = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1]
    found = Spectrum.from_data(rows, blocks=9)
    np.testing.assert_allclose(found.eigenvalues[:4], exact[:4], rtol=1e-3)
    np.testing.assert_allclose(found.trace, rows.var(axis=0).mean(), rtol=1e-10)
    np.testing.assert_allclose(found.fractions, [*np.full(8, 1 / 60), 52 / 60], rtol=1e-12)
    directions = found_in(rows, 8).directions
    np.testing.assert_allclose(directions.T @ directions, np.eye(8), atol=1e-10)


def test_rows_that_have_no_spectrum_are_refused_in_words(monkeypatch):
    given = {"np": np, "Spectrum": Spectrum, "read": iter([])}
    cases = {
        "Spectrum.from_data(read)": "an iterator that was read before has none left",
        "Spectrum.from_data(np.ones(4))": "give (n, d), one row for each sample",
        "Spectrum.from_data([[1.0, 2.0], [3.0, 4.0]])": "each must be (rows, d)",
        "Spectrum.from_data([np.ones((3, 2)), np.ones((3, 4))])": "2 and 4 columns",
        "Spectrum.from_data(3)": "an iterable of batches",
        "Spectrum.from_data(np.array([['a', 'b']]))": "it must be real numbers",
        "Spectrum.from_data(np.array([[1.0, np.nan], [0.0, 1.0]]))": "NaN or infinite",
        "Spectrum.from_data(np.ones((5, 3)))": "All rows of X are the same",
        "Spectrum.from_data(np.ones((1, 3)))": "one row only",
        "Spectrum.from_data(np.eye(3), blocks=0)": "at least 1",
    }
    assert_refused(given, cases)
    monkeypatch.setattr(components, "LARGEST_MATRIX", 2)
    assert_refused(given, {"Spectrum.from_data(np.eye(4), blocks=6)": "more rows or fewer blocks"})
    monkeypatch.setitem(sys.modules, "sklearn.decomposition", None)
    assert_refused(given, {"Spectrum.from_data(np.eye(4), blocks=2)": "need scikit-learn: pip install"})


class RawFile:
    """Rows in a file without a header: its shape is what somebody has said."""

    def __init__(self, path, shape):
        self.path, self.shape = path, shape

    def __getitem__(self, index):
        numbers = np.fromfile(self.path)
        return numbers[: len(numbers) // self.shape[1] * self.shape[1]].reshape(-1, self.shape[1])[index]


@pytest.mark.parametrize("rows_in_batch", [None, 50, 64], ids=["one batch", "it ends with a batch", "within a batch"])
def test_an_array_that_ends_early_is_refused_in_words(tmp_path, rows_in_batch, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(200, 5))
    rows.tofile(tmp_path / "rows")
    whole = Spectrum.from_data(RawFile(tmp_path / "rows", (200, 5)))
    np.testing.assert_allclose(whole.eigenvalues, Spectrum.from_data(rows).eigenvalues)
    os.truncate(tmp_path / "rows", 8 * (5 * 150 + 2))
    if rows_in_batch is not None:
        monkeypatch.setattr(components, "_NUMBERS", 5 * rows_in_batch)
    given = {"dimfree": dimfree, "X": RawFile(tmp_path / "rows", (200, 5)), "rows": rows, "ERF": ERF, "SGD": SGD}
    words = "X says that it has 200 rows, but it ends after 150"
    cases = {
        "dimfree.Spectrum.from_data(X)": words,
        "dimfree.RandomFeatures.from_data(X, rows[:, 0])": words,
        "dimfree.from_data(X, np.ones((1, 5)), ERF, SGD, alpha=1.0, runs=8, key=KEY)": "150",
    }
    assert_refused(given | {"np": np, "KEY": KEY}, cases)


# The sets that SGD draws from.


@pytest.mark.parametrize("n", [500, 9])
def test_a_gaussian_set_has_the_mean_and_the_covariance_of_the_data_exactly(n):
    rows = rows_of(n=n)
    made = sets.gaussian_set(found_in(rows), 2.0, n > 12, np.random.default_rng(0))
    array = made.take(np.arange(n))
    np.testing.assert_allclose(array.mean(axis=0), 0, atol=1e-10)
    covariance = np.cov(rows.T, bias=True) / 4
    np.testing.assert_allclose(array.T @ array / n, covariance, atol=1e-8 * np.abs(covariance).max())
    if n > 12:
        np.testing.assert_allclose(np.mean(made.noise**2), 1.0, rtol=1e-10)
        np.testing.assert_allclose(made.noise @ array, 0, atol=1e-7)


def test_a_set_too_large_to_keep_has_the_covariance_on_average(monkeypatch):
    monkeypatch.setattr(components, "LARGEST_MATRIX", 5)
    rows = np.random.default_rng(3).normal(size=(4_000, 10)) * [4.0, 3.0, *[1.0] * 8]
    found = found_in(rows, 2)
    made = sets.gaussian_set(found, 2.0, False, np.random.default_rng(0))
    array = made.take(np.arange(4_000))
    np.testing.assert_array_equal(made.take(np.array([17, 3])), array[[17, 3]])
    # Entries have standard errors below (2 / 4000)^1/2 times the largest variance, 4: six of them.
    expected = found.directions * found.eigenvalues @ found.directions.T
    expected += found.rest * (np.eye(10) - found.directions @ found.directions.T)
    np.testing.assert_allclose(array.T @ array / 4_000, expected / 4, atol=6 * (2 / 4_000) ** 0.5 * 4)


def test_given_rows_are_centred_scaled_and_taken_in_any_order():
    rows = rows_of()
    found = sets.GivenRows(rows, rows.mean(axis=0), 3.0, np.zeros(500))
    index = np.array([4, 499, 4, 0])
    np.testing.assert_allclose(found.take(index), (rows[index] - rows.mean(axis=0)) / 3, rtol=1e-12)


@pytest.mark.parametrize("complete", [True, False])
def test_least_squares_by_batches(complete, monkeypatch):
    rows = rows_of()
    if not complete:
        monkeypatch.setattr(components, "LARGEST_MATRIX", 4)
    monkeypatch.setattr(components, "_NUMBERS", 12 * 70)
    labels = np.cos(rows[:, 0]) + rows @ np.linspace(-1, 1, 12) + 7
    weights, residuals = components.least_squares(rows, labels, found_in(rows))
    exact = np.linalg.lstsq(np.column_stack([rows, np.ones(500)]), labels)[0]
    np.testing.assert_allclose(weights, exact[:-1], atol=1e-5 if not complete else 1e-9)
    np.testing.assert_allclose(residuals, labels - rows @ exact[:-1] - exact[-1], atol=1e-5 if not complete else 1e-7)


# SGD on them.


def test_sgd_on_rows_is_that_of_a_loop_by_hand_however_steps_are_grouped(monkeypatch):
    rows, d = rows_of(), 12
    mean, scale, noise = rows.mean(axis=0), 5.0, np.random.default_rng(4).normal(size=500)
    generator = np.random.default_rng(5)
    students, teachers = generator.normal(size=(2, d)), generator.normal(size=(1, d))
    problem = dimfree.TwoLayer(2, 1, activation="tanh", noise=0.25)
    sgd = dimfree.Momentum(0.2, 0.1, 2.0, batch_size=3)
    labelled, saves = sets.GivenRows(rows, mean, scale, noise), np.array([0, 7, 30])

    def run(chunk):
        monkeypatch.setattr(sets, "_CHUNK", chunk)
        generators = [np.random.default_rng(each) for each in range(2)]
        return sets.run(problem, sgd, students, teachers, labelled, saves, generators, no_progress())

    weights, readouts, finite = run(2**22)
    np.testing.assert_array_equal(weights, run(2 * 3 * d * 4)[0])
    assert finite.all()

    for each in range(2):
        now, momentum = students, np.zeros_like(students)
        draws = np.random.default_rng(each).integers(500, size=(30, 3))
        for step, index in enumerate(draws):
            for place in np.flatnonzero(saves == step):
                np.testing.assert_allclose(weights[each, place], now, rtol=1e-10)
            x = (rows[index] - mean) / scale
            fields = x @ now.T / d**0.5
            error = np.tanh(fields).mean(axis=1) - np.tanh(x @ teachers[0] / d**0.5) - 0.5 * noise[index]
            slopes = error[:, None] / np.cosh(fields) ** 2 / 2
            gradient = slopes.T @ x / (3 * d**0.5)
            now, momentum = moved(sgd, now, momentum, gradient, teachers)
        np.testing.assert_allclose(weights[each, -1], now, rtol=1e-10)

    index = np.arange(0, 500, 3)
    x = (rows[index] - mean) / scale
    measured = sets.risk(problem, labelled, index, teachers, weights, readouts)
    output = np.tanh(np.einsum("rtpd,md->rtmp", weights, x) / d**0.5).mean(axis=-1)
    error = output - np.tanh(x @ teachers[0] / d**0.5) - 0.5 * noise[index]
    np.testing.assert_allclose(measured, np.mean(error**2, axis=-1) / 2, rtol=1e-10)


def moved(algorithm, students, momentum, gradient, teachers):
    """One step of an algorithm whose only own vectors are a momentum."""
    (name,) = algorithm.own
    now = {STUDENTS: jnp.asarray(students), TEACHERS: jnp.asarray(teachers), name: jnp.asarray(momentum)}
    after, _ = algorithm.step_vectors(now, None, jnp.asarray(gradient), None, jnp.zeros(()))
    return np.asarray(after[STUDENTS]), np.asarray(after[name])


@pytest.mark.parametrize("largest", [4096, 5])
def test_the_start_has_the_overlaps_of_its_vectors_in_each_block(largest, monkeypatch):
    monkeypatch.setattr(components, "LARGEST_MATRIX", largest)
    rows = rows_of(d=15)
    found = found_in(rows, 6)
    students, teachers = np.random.default_rng(6).normal(size=(3, 15)), np.ones((1, 15))
    spectrum = Spectrum(*found.spectrum)
    state = comparison._overlaps(found, spectrum, students, teachers)
    both = np.concatenate([students, teachers])
    np.testing.assert_allclose(state.covariance, both @ both.T / 15, rtol=1e-10)
    covariance = (found.directions * found.eigenvalues) @ found.directions.T
    covariance += found.rest * (np.eye(15) - found.directions @ found.directions.T)
    np.testing.assert_allclose(spectrum.fields(state).covariance, both @ covariance @ both.T / 15, rtol=1e-9)
    merged = comparison._overlaps(found, spectrum.merged(4), students, teachers)
    np.testing.assert_allclose(merged.covariance, both @ both.T / 15, rtol=1e-10)
    assert merged.blocks == 4


def test_the_law_of_fields_is_measured():
    generator = np.random.default_rng(7)
    rows = np.column_stack([generator.normal(size=200_000), generator.uniform(size=200_000)])
    labelled = sets.GivenRows(rows, np.zeros(2), 1.0, np.zeros(200_000))
    kurtosis, distance = sets.field_shapes(labelled, np.arange(200_000), np.eye(2))
    np.testing.assert_allclose(kurtosis, [3.0, 1.8], atol=6 * (24 / 200_000) ** 0.5)
    grid = (np.arange(100_000) + 0.5) / 100_000
    from scipy.special import ndtri

    exact = np.mean(np.abs(12**0.5 * (grid - 0.5) - ndtri(grid)))
    assert distance[0] < 0.01
    np.testing.assert_allclose(distance[1], exact, rtol=0.02)


# The verdict.


def gaussian_rows(n=3_000, d=40, seed=8):
    return np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(0.5, 2, d)


def compared(rows, target=None, problem=ERF, sgd=SGD, alpha=None, runs=16, key=KEY, **options):
    target = np.random.default_rng(9).normal(size=(1, rows.shape[1])) if target is None else target
    alpha = np.array([0.0, 1.0, 4.0, 12.0]) if alpha is None else alpha
    return dimfree.from_data(rows, target, problem, sgd, alpha=alpha, runs=runs, key=key, **options)


def test_theory_describes_sgd_on_gaussian_rows_and_the_result_shows_it(tmp_path):
    rows = gaussian_rows()
    found = compared(rows)
    assert found.agrees
    assert found.causes == ()
    words = str(found)
    assert "Theory describes SGD on these data" in words
    assert f"effective dimension {found.effective_dimension:.3g} of 40" in words
    np.testing.assert_allclose(found.effective_dimension, 40 * 1.75**2 / 4.2625, rtol=0.05)
    np.testing.assert_allclose(found.scale**2, rows.var(axis=0).mean(), rtol=1e-10)
    np.testing.assert_allclose(found.passes, 12 * 40 / 3_000)
    means = found.means
    assert means["theory"][0][-1] < 0.2 * means["theory"][0][0]  # there was something to learn
    dataset = found.to_xarray()
    np.testing.assert_array_equal(dataset["data"].mean("run"), means["data"][0])
    assert dataset.attrs["agrees"] == "True"
    assert "saad1995" in dimfree.cite(found)
    file = np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float64, rows.shape)
    file[:] = rows
    again = compared(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    np.testing.assert_allclose(again.data, found.data, rtol=1e-9)
    np.testing.assert_array_equal(again.start_weights, found.start_weights)
    assert not np.allclose(compared(rows, key=jax.random.key(1)).data[:16], found.data[:16])


def test_the_picture_has_the_curves():
    found = compared(gaussian_rows())
    axes = dimfree.plot.data(found)
    lines = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
    assert set(lines) == {"theory", "Gaussian inputs", "Gaussian set", "data"}
    np.testing.assert_allclose(lines["data"], found.means["data"][0])
    np.testing.assert_allclose(lines["theory"], found.theory.risk)
    assert "describes" in axes.get_title(loc="left")


def test_rows_of_different_sizes_are_not_gaussian_and_are_once_divided_by_their_norms():
    rows = gaussian_rows()
    sizes = np.random.default_rng(10).choice([0.2, 3.0], size=(len(rows), 1), p=[0.8, 0.2])
    found = compared(rows * sizes)
    assert not found.agrees
    assert found.causes == ("not Gaussian",)
    assert "dividing each by its norm" in str(found)
    assert found.fields.teacher_kurtosis[0] > 8
    normalised = rows * sizes / np.linalg.norm(rows * sizes, axis=1, keepdims=True)
    assert compared(normalised).agrees
    # The same covariance, with Gaussian rows: what is left is in the law alone.
    covariance = np.cov((rows * sizes).T)
    drawn = np.random.default_rng(11).multivariate_normal(np.zeros(40), covariance, size=len(rows))
    assert compared(drawn).agrees


class ByColumns:
    """A data frame as polars has it: it takes columns by their names, and rows only in slices."""

    def __init__(self, columns):
        self.of = {name: np.asarray(values) for name, values in columns.items()}
        self.columns = list(self.of)
        self.shape = (len(self.of[self.columns[0]]), len(self.columns))

    def __getitem__(self, name):
        return self.of[name]

    def to_numpy(self):
        return np.column_stack(list(self.of.values()))


def test_data_frames_are_their_numbers():
    rows = gaussian_rows()
    by_pandas = pandas.DataFrame(rows, columns=[f"x{j}" for j in range(40)], index=np.arange(len(rows))[::-1])
    found, framed = compared(rows), compared(by_pandas)
    np.testing.assert_allclose(framed.data, found.data, rtol=1e-9)
    np.testing.assert_allclose(framed.gaussian_set, found.gaussian_set, rtol=1e-9)
    frames = (
        by_pandas,
        ByColumns({f"x{j}": column for j, column in enumerate(rows.T)}),
        [by_pandas[:7], by_pandas[7:]],
    )
    for frame in frames:
        np.testing.assert_allclose(
            Spectrum.from_data(frame).eigenvalues, Spectrum.from_data(rows).eigenvalues, rtol=1e-9
        )
    # Columns of different types are one array of objects.
    mixed = pandas.DataFrame({"whole": pandas.array([1, 2, 3, 5], "Int64"), "yes": [True, False, True, True]})
    np.testing.assert_array_equal(components.without_frame(mixed, "X"), [[1, 1], [2, 0], [3, 1], [5, 1]])
    # Labels in the order of the rows, whatever their index.
    labels = pandas.Series(rows[:, 0], index=np.arange(len(rows))[::-1])
    features = [dimfree.RandomFeatures.from_data(*each) for each in ((rows, rows[:, 0]), (by_pandas, labels))]
    np.testing.assert_allclose(features[0].target, features[1].target, atol=1e-12)
    assert features[1].noise < 1e-20


def test_rows_that_fail_late_are_refused_before_anything_is_computed(monkeypatch):
    monkeypatch.setattr(comparison, "components_of", lambda *_, **__: pytest.fail("rows were read"))
    rows = gaussian_rows(n=60, d=3)

    class Lazy:
        """It says that it is an array, and takes rows one by one only."""

        shape = rows.shape

        def __getitem__(self, place):
            return rows[int(place)]

    class Short(Lazy):
        def __getitem__(self, place):
            return rows[place][0]

    frame = pandas.DataFrame(rows, columns=["a", "b", "c"])
    missing = pandas.array([None, *range(59)], "Int64")

    def of(X, target=None):
        target = np.ones((1, 3)) if target is None else target
        return dimfree.from_data(X, target, LABELS, SGD, alpha=1.0, runs=8, key=KEY)

    given = {"of": of, "frame": frame, "pandas": pandas, "Lazy": Lazy, "Short": Short, "np": np, "rows": rows}
    given |= {"missing": missing, "csr": scipy.sparse.csr_array}
    cases = {
        "of(frame.assign(b='low'))": "column 'b' of X holds 'low', which is not a number",
        "of(frame.assign(when=pandas.Timestamp(0)))": "column 'when' of X holds 1970-01-01",
        "of(frame.assign(b=missing))": "column 'b' of X holds <NA>",
        "of(Lazy())": "Rows cannot be taken from X, of type Lazy, by their numbers",
        "of(Short())": "2 rows taken from X, of type Short, have shape (3,), not (2, 3)",
        "of(csr(rows))": "X is a sparse matrix; give X.toarray()",
        "of(rows, pandas.Series(['odd'] * 60))": "target holds 'odd', which is not a number",
        "of(rows, frame.a[:50])": "50 labels for 60 rows",
        "of(rows, frame[['a']])": "shape (60, 1); give labels, shape (60,)",
        "of(rows, np.ma.masked_array(rows[:, 0], rows[:, 0] > 0))": "masked entries",
    }
    assert_refused(given, cases)


def test_masked_rows_and_rows_beyond_the_largest_number_are_refused():
    rows = gaussian_rows(n=60, d=3)
    cases = {
        "Spectrum.from_data(np.ma.masked_array(rows, rows > 1))": "X has masked entries",
        "Spectrum.from_data(1e200 * rows)": "larger than the largest number",
        "RandomFeatures.from_data(rows, ['odd'] * 60)": "it must be real numbers",
    }
    given = {"Spectrum": Spectrum, "np": np, "rows": rows, "RandomFeatures": dimfree.RandomFeatures}
    with np.errstate(over="ignore", invalid="ignore"):
        assert_refused(given, cases)


def test_few_rows_used_often_are_a_finite_sample():
    rows = gaussian_rows(n=60)
    found = compared(rows, problem=dimfree.TwoLayer(1, activation="erf", noise=0.2), alpha=np.array([0.0, 5.0, 40.0]))
    assert "finite sample" in found.causes
    assert found.distances["finite sample"].values[-1] < -0.2  # it fits the noise of the labels that it has
    assert "SGD meets each row about 26.7 times" in str(found)
    more = compared(
        gaussian_rows(),
        problem=dimfree.TwoLayer(1, activation="erf", noise=0.2),
        alpha=np.array([0.0, 5.0, 40.0]),
    )
    assert more.agrees


@pytest.mark.slow
def test_few_directions_with_all_the_variance_are_a_finite_dimension():
    """Theory is that of many directions; where one has most of the variance it misses a tenth of the risk.

    A larger rate misses more, but risks then have so long a tail that means over runs do not tell.
    """
    rows = np.random.default_rng(12).normal(size=(5_000, 60)) / np.arange(1, 61)
    alpha, problem = np.array([0.0, 0.1, 0.2, 0.5]), dimfree.TwoLayer(1, activation="linear")
    found = compared(rows, problem=problem, sgd=dimfree.OnlineSGD(0.4), alpha=alpha, runs=512, blocks=60)
    assert found.causes == ("finite dimension",)
    assert found.effective_dimension < 3
    assert "exact in law" in str(found)


def spread_runs(found, size, *, scatter, seed, tail=None):
    """The same result with invented runs: on each set and on the data around `size` times the risk of theory.

    With `tail`, the data have log-normal runs with this deviation and the median that is given.
    """
    generator, shape = np.random.default_rng(seed), found.gaussian_set.shape
    theory = np.asarray(found.theory.risk)
    factors = 1 + scatter * generator.normal(size=shape), size + scatter * generator.normal(size=shape)
    if tail is not None:
        factors = factors[0], size * np.exp(tail * generator.normal(size=shape))
    on_sets, data = (theory * np.where(found.alpha > 0, each, 1.0) for each in factors)
    return dataclasses.replace(found, gaussian_set=on_sets, data=data)


@pytest.fixture(scope="module")
def gaussian_result():
    return compared(gaussian_rows(), most_runs=16)


def test_runs_decide_or_the_report_says_how_many_would(gaussian_result):
    """Sixteen invented runs around a known multiple of the theory. By chance less than once in 10^3 each."""
    near = spread_runs(gaussian_result, 1.0, scatter=0.05, seed=0)
    assert near.verdict == "agrees"
    assert near.precision < 0.1
    assert f"describes SGD on these data to {near.precision:.0%} of the risk" in str(near)
    far = spread_runs(gaussian_result, 1.3, scatter=0.1, seed=1)
    assert far.verdict == "differs"
    assert "of the risk at alpha = 0," not in str(far)
    kurtosis = max(far.fields.student_kurtosis.max(), far.fields.teacher_kurtosis.max())
    assert f"kurtosis of the fields up to {kurtosis:.3g} (Gaussian: 3), effective dimension" in str(far)
    # Errors of 0.6 / 4 of the risk: a distance of 0.3 is two of them.
    wide = spread_runs(gaussian_result, 1.3, scatter=0.6, seed=2)
    assert wide.verdict == "undecided"
    assert not wide.agrees
    assert wide.causes == ()
    assert str(wide).startswith("Theory and SGD on these data are not told apart: they differ by ")
    assert f"(most_runs={int(np.ceil(wide.runs_needed))})" in str(wide)
    assert wide.runs_needed > 16
    # Rare runs with nearly all of the risk: the mean tells nothing, a typical run does.
    tails = spread_runs(gaussian_result, 6.0, scatter=0.1, seed=3, tail=4.0)
    assert not tails.distances["all"].matters
    assert tails.verdict == "differs"
    assert tails.causes == ("not Gaussian",)
    assert "a typical run has " in str(tails)


def test_the_start_is_not_judged():
    """There risks are the same up to rounding, or differ before anything is learned."""
    values, errors = np.array([-0.4, 0.02, 0.08, 0.065]), np.array([1e-17, 0.01, 0.01, 0.01])
    found = distances.Distance(values, errors, 1)
    # The last is more than four standard errors, but not two more than the tolerance.
    assert found.told.tolist() == [False, False, True, False]
    assert found.telling == 2
    np.testing.assert_allclose(found.precision, 0.1)
    small = distances.Distance(np.array([0.0, 1e-9, 0.03, 0.2]), np.array([0.0, 0.0, 0.02, 0.2]), 1)
    assert not small.matters
    assert small.telling == 2  # one and a half standard errors; the first is rounding, the last one standard error


def test_the_variance_between_sets_is_that_of_a_nested_design():
    generator, sets_of = np.random.default_rng(18), np.arange(60) % 5
    values = generator.normal(size=(60, 3)) + 2.0 * generator.normal(size=(5, 3))[sets_of]
    groups = np.stack([values[sets_of == each] for each in range(5)])
    inside = groups.var(axis=1, ddof=1).mean(axis=0)
    expected = groups.mean(axis=1).var(axis=0, ddof=1) - inside / 12
    np.testing.assert_allclose(distances.between_sets(values, sets_of), expected, rtol=1e-10)
    assert (expected > 0).all()
    mean, error = distances.set_mean(values, sets_of)
    np.testing.assert_allclose(mean, values.mean(axis=0))
    np.testing.assert_allclose(error**2, values.var(axis=0, ddof=1) / 60 + expected / 5, rtol=1e-10)
    # Runs that diverged are left out, and sets that have none left.
    lost = np.concatenate([values, np.full((4, 3), np.nan)])
    np.testing.assert_allclose(distances.between_sets(lost, np.append(sets_of, [0, 5, 5, 5])), expected, rtol=1e-10)
    # No variance between sets: the estimate is unbiased, so that half of them are zero.
    none = [distances.between_sets(generator.normal(size=(64, 1)), np.arange(64) % 8)[0] for _ in range(400)]
    assert 0.4 < np.mean(np.array(none) == 0) < 0.65  # 5 standard errors of 400 tosses
    assert np.mean(none) < 0.1  # a thirtieth of the variance of a run


def test_the_runs_that_are_needed_have_small_enough_errors():
    own, typical = np.array([0.0, 0.01]), distances.Distance(np.zeros(2), np.ones(2), 1)

    def needed(distance, between=0.0, like=typical):
        whole = distances.Distance(np.array([0.0, distance]), np.sqrt(own + between), 1)
        return distances.runs_needed(whole, like, own, 16)

    np.testing.assert_allclose(needed(0.2), 64)  # an error of 0.05, half of what it is
    np.testing.assert_allclose(needed(0.2, between=0.0016), 16 * 0.01 / (0.0025 - 0.0016))
    np.testing.assert_allclose(needed(0.09), 16 * 0.01 / 0.02**2)  # two standard errors more than the tolerance
    np.testing.assert_allclose(needed(0.02), 16 * 0.01 / 0.04**2)  # an agreement to 0.1
    assert needed(0.02, between=0.04**2) == np.inf
    like = distances.Distance(np.array([0.0, -1.0]), np.array([0.0, 0.5]), 1)
    np.testing.assert_allclose(needed(0.02, like=like), 64)


LINEAR = dimfree.TwoLayer(1, activation="linear")
FASTER = dimfree.OnlineSGD(0.6)


def heavy_tailed(rows, freedom, seed):
    """Elliptical rows: each Gaussian one times an independent size, of a law with a power-law tail."""
    return rows * np.sqrt(freedom / np.random.default_rng(seed).chisquare(freedom, size=(len(rows), 1)))


def test_heavy_tailed_rows_are_told_from_theory():
    """Where rare runs have most of the risk, the mean over sixteen runs was not told apart from theory."""
    found = compared(heavy_tailed(gaussian_rows(), 4, 19), problem=LINEAR, sgd=FASTER)
    assert found.verdict == "differs"
    assert found.causes == ("not Gaussian",)
    assert "at alpha = 0 " not in str(found).splitlines()[0]
    assert "kurtosis of the fields up to" in str(found)
    assert not found.distances["all"].matters


@pytest.mark.slow
@pytest.mark.parametrize(("freedom", "least"), [(None, 0), (3, 8), (5, 8), (8, 6)])
def test_verdicts_on_elliptical_rows(freedom, least):
    """Effective dimensions of 30 and 13 of 50, two losses, two keys; sixteen runs to begin with, 128 at most.

    With this rule none of 48 Gaussian sets was told apart from theory, so that a false alarm is rarer than 6% (at 95%
    confidence); all of 16 sets with 3 and 5 degrees of freedom were, and 7 of 8 with 8. Where theory and data are not
    told apart the report has a precision, or what is missing.
    """
    told = 0
    for exponent in (0.6, 1.0):
        for problem, rate in ((ERF, 0.5), (LINEAR, 0.3)):
            for seed in (0, 1):
                generator = np.random.default_rng(seed)
                rows = generator.normal(size=(3_000, 50)) * np.arange(1, 51) ** (-exponent / 2)
                if freedom is not None:
                    rows = heavy_tailed(rows, freedom, [seed, 1])
                target = np.random.default_rng(seed + 100).normal(size=(1, 50))
                alpha, key = np.array([0.0, 0.5, 1.0, 2.0, 5.0, 10.0]), jax.random.key(seed)
                found = compared(rows, target, problem, dimfree.OnlineSGD(rate), alpha=alpha, key=key)
                words = str(found)
                assert found.alpha[found.distances["all"].telling] > 0
                if found.verdict == "differs":
                    told += 1
                    assert found.causes == ("not Gaussian",), found
                elif found.verdict == "agrees":
                    assert f"to {found.precision:.0%} of the risk" in words
                    assert found.precision < 0.25
                else:
                    assert "runs would decide (most_runs=" in words or "More runs alone would not decide" in words
    assert (told == 0) if freedom is None else (told >= least)


def test_more_runs_are_made_until_they_decide():
    few, more = (compared(gaussian_rows(), problem=LINEAR, sgd=FASTER, most_runs=most) for most in (16, 64))
    assert len(few.data) == 16
    assert 16 < len(more.data) <= 64
    assert more.precision < few.precision
    np.testing.assert_allclose(more.data[:16], few.data, rtol=1e-12)
    np.testing.assert_allclose(more.gaussian_set[:16], few.gaussian_set, rtol=1e-12)
    assert np.unique(more.data[:, -1]).size == len(more.data)
    assert np.unique(more.gaussian_set[:, -1]).size == len(more.data)
    assert more.verdict == "agrees", more


def test_labels_have_a_linear_teacher_and_their_residuals_as_noise():
    rows = gaussian_rows()
    generator = np.random.default_rng(13)
    slope = generator.normal(size=40) / 40**0.5
    labels = 3 + rows @ slope + 0.4 * generator.normal(size=len(rows))
    found = compared(rows, labels, LABELS)
    assert found.agrees, found
    exact = np.linalg.lstsq(np.column_stack([rows, np.ones(len(rows))]), labels)[0]
    residual = labels - np.column_stack([rows, np.ones(len(rows))]) @ exact
    np.testing.assert_allclose(found.problem.noise, np.mean(residual**2), rtol=1e-8)
    np.testing.assert_allclose(found.label_mean, labels.mean())
    np.testing.assert_allclose(found.teacher_weights[0], exact[:-1] * found.scale * 40**0.5, rtol=1e-8)
    # At the start the risk on the data is that of the labels themselves, by hand.
    inputs = (rows - found.mean) / found.scale
    error = inputs @ found.start_weights[0] / 40**0.5 - (labels - labels.mean())
    np.testing.assert_allclose(found.data[:, 0], np.mean(error**2) / 2, rtol=1e-8)
    without = compared(rows, rows @ slope, LABELS)
    assert float(without.problem.noise) == 0.0
    assert without.agrees


@pytest.mark.parametrize("labelled", [pytest.param(True, marks=pytest.mark.slow), False])
def test_many_dimensions_with_a_few_directions_and_a_flat_rest_are_described(labelled, monkeypatch):
    monkeypatch.setattr(components, "LARGEST_MATRIX", 20)
    generator = np.random.default_rng(17)
    turned = np.linalg.qr(generator.normal(size=(40, 40)))[0]
    rows = generator.normal(size=(20_000, 40)) * [4.0, 3.0, 2.0, *[1.0] * 37] @ turned.T
    slope = generator.normal(size=40) / 40**0.5
    target = rows @ slope + generator.normal(size=20_000) if labelled else None
    found = compared(rows, target, LABELS, blocks=4)
    assert found.agrees, found
    np.testing.assert_allclose(found.problem.inputs.fractions, [1 / 40, 1 / 40, 1 / 40, 37 / 40])
    np.testing.assert_allclose(found.problem.inputs.eigenvalues * found.scale**2, [16, 9, 4, 1], rtol=0.06)
    if labelled:
        np.testing.assert_allclose(found.problem.noise, 1.0, atol=6 * (2 / 20_000) ** 0.5)


def test_a_wrong_spectrum_does_not_go_unseen():
    rows = np.random.default_rng(14).normal(size=(5_000, 60)) * np.arange(1.0, 61) ** -0.5
    alphas = np.array([0.0, 2.0, 8.0, 30.0])
    found = found_in(rows)
    spectrum = Spectrum(found.eigenvalues / found.mean_variance, found.spectrum[1]).merged(40)
    generator = np.random.default_rng(9)
    start = comparison._overlaps(found, spectrum, generator.normal(size=(1, 60)), generator.normal(size=(1, 60)))
    problem = ERF.with_inputs(spectrum)
    runs = dimfree.simulate(problem, SGD, start, 60, alphas, runs=64, key=KEY, method="vectors")
    risk = np.asarray(runs.risk)
    error = risk.std(axis=0, ddof=1) / 8
    wrong = {
        "as it is": (spectrum, False),
        "flat": (Spectrum(np.full(spectrum.blocks, float(spectrum.trace)), spectrum.fractions), True),
        "shuffled": (Spectrum(spectrum.eigenvalues[::-1], spectrum.fractions), True),
    }
    for name, (other, caught) in wrong.items():
        theory = dimfree.solve(dimfree.ode(ERF.with_inputs(other), SGD), start, alphas)
        # Two false alarms in 10^4: 4.3 standard errors at three times; and the O(1/d) of the mean, below 5%.
        distance = np.abs(np.asarray(theory.risk) - risk.mean(axis=0))
        assert (distance > 4.3 * error + 0.05 * risk.mean(axis=0)).any() == caught, name


@pytest.mark.slow
def test_a_trained_readout_momentum_and_several_teachers_run():
    problem = dimfree.TwoLayer(2, 2, activation="erf", readout=[0.5, 0.7])
    sgd = dimfree.OnlineSGD(0.3, batch_size=2, readout_rate=0.1)
    teachers = np.random.default_rng(15).normal(size=(2, 40))
    found = compared(gaussian_rows(), teachers, problem, sgd)
    assert found.agrees
    assert not np.allclose(found.theory.state.readout[-1], [0.5, 0.7])
    assert compared(gaussian_rows(), teachers, problem, dimfree.Momentum(0.2, 0.1, 2.0)).agrees


def test_diverged_runs_are_counted_and_left_out():
    found = compared(gaussian_rows())
    data = found.data.copy()
    data[3, 2:] = np.nan
    lost = dataclasses.replace(found, data=data)
    assert f"1 of {len(data)} runs (data) diverged and are left out" in str(lost)
    np.testing.assert_allclose(lost.means["data"][0], np.delete(found.data, 3, axis=0).mean(axis=0))
    assert lost.agrees
    # One row in a hundred is far out: Gaussian inputs are learned, and the data throw SGD off.
    rows = gaussian_rows()
    rows[::100] *= 1e3
    with pytest.raises(InvalidInput, match=r"diverged; there is nothing to compare.*smaller learning rate"):
        compared(
            rows,
            problem=dimfree.TwoLayer(1, activation="linear"),
            sgd=dimfree.OnlineSGD(0.5),
            alpha=np.array([0.0, 40.0]),
        )


def test_what_cannot_be_compared_is_refused_in_words():
    rows = gaussian_rows(n=200, d=10)
    teacher = np.ones((1, 10))

    def of(features=rows, target=teacher, problem=ERF, sgd=SGD, **options):
        given = {"alpha": 1.0, "runs": 8, "key": KEY} | options
        return dimfree.from_data(features, target, problem, sgd, **given)

    given = {
        "dimfree": dimfree,
        "np": np,
        "of": of,
        "rows": rows,
        "ERF": ERF,
    }
    cases = {
        "of(iter([rows]))": "dimfree.Spectrum.from_data takes batches",
        "of(rows[0])": "give (n, d)",
        "of(target=np.ones((2, 10)))": "shape (1, 10)",
        "of(target=np.ones(7))": "7 labels for 200 rows",
        "of(target=rows[:, 0])": 'teacher_activation="linear"',
        "of(target=rows[:, 0], problem=dimfree.TwoLayer(1, activation='linear', noise=0.1))": "Leave out noise",
        "of(rows[:10], target=rows[:10, 0], problem=dimfree.TwoLayer(1, activation='linear'))": "fits any labels",
        "of(target=np.ones(200), problem=dimfree.TwoLayer(1, activation='linear'))": "All labels are the same",
        "of(target=np.full((1, 10), np.nan))": "NaN",
        "of(target='labels')": "target = 'labels' was given; it must be real numbers",
        "of(problem=dimfree.SpikedTensor(2, 1.0))": "without inputs of its own",
        "of(problem=ERF.with_inputs(dimfree.Spectrum([2.0])))": "without inputs of its own",
        "of(problem='network')": "pass a problem",
        "of(sgd=dimfree.GradientDescent(0.1, 2.0))": "OnlineSGD",
        "of(runs=2)": "at least 8",
        "of(most_runs=7)": "most_runs = 7 was given; it must be a whole number, at least 8",
        "of(blocks=1)": "at least 2",
        "of(key=0)": "jax.random.key",
        "of(start=np.ones((2, 10)))": "shape (1, 10)",
        "of(start=np.ones((1, 10)) * 2, sgd=dimfree.OnlineSGD(0.1, sphere=True))": "sphere=True",
        "of(alpha=-1.0)": "must be positive",
        "dimfree.plot.data(ERF)": "what dimfree.from_data(...) gives",
    }
    assert_refused(given, cases)


# Photographs and digits, as in the tutorial.


@pytest.mark.slow
def test_residuals_that_depend_on_the_rows_are_told_from_rows_that_are_not_gaussian():
    rows = gaussian_rows()
    labels = np.sign(rows @ np.random.default_rng(16).normal(size=40))
    found = compared(rows, labels, dimfree.TwoLayer(1, activation="tanh", teacher_activation="linear"))
    assert found.causes == ("not Gaussian",)
    assert "give teacher_weights as target" in str(found)
    noise = float(found.problem.noise)
    with_noise = dimfree.TwoLayer(1, activation="tanh", teacher_activation="linear", noise=noise)
    assert compared(rows, found.teacher_weights, with_noise).agrees


@pytest.mark.slow
def test_photographs_are_described_late_and_not_early():
    """Numbers of one random teacher: in `docs/data/own_data.csv` they are the same ones."""
    from data_table import compared as case

    found = case("patches")
    assert found.causes == ("not Gaussian",)
    steps = found.distances
    assert abs(steps["all"].values[1] + 0.24) < 0.08  # at 100 samples, where one eigenvalue rules
    assert abs(steps["all"].values[-1]) < 0.1  # at 40,000
    assert not steps["finite dimension"].matters
    assert not steps["finite sample"].matters
    assert case("patches, Gaussianised").agrees


@pytest.mark.slow
def test_digits_with_labels_and_without():
    from data_table import compared as case

    assert case("digits, Gaussianised").agrees
    assert case("digits, odd or even").causes == ("not Gaussian",)
    for name in ("digits", "random features of digits"):
        found = case(name)
        assert not found.distances["finite dimension"].matters
        assert np.abs(found.distances["all"].values).max() < 0.12


def test_an_early_end_has_fewer_times_than_usual():
    """201 times by default, but ten steps."""
    rows = np.random.default_rng(0).normal(size=(200, 20))
    problem, sgd = dimfree.TwoLayer(1, 1, "linear"), dimfree.OnlineSGD(0.1)
    found = dimfree.from_data(rows, np.eye(1, 20), problem, sgd, alpha=0.5, runs=8, key=jax.random.key(0))
    np.testing.assert_allclose(found.theory.alpha, np.arange(11) / 20)
    assert found.data.shape[1:] == (11,)
