"""Which limit applies, and how big its error is."""

import jax
import numpy as np
import pytest
from matplotlib import pyplot as plt

import dimfree
from dimfree.analysis.regimes import LIMITS, ErrorScales
from refusals import assert_refused

SCALES = ErrorScales(
    time=1.5,
    risk=0.2,
    fluctuation=0.1,
    start=0.2,
    noise=0.014,
    width=0.07,
    density=0.17,
    angles=0.003,
    between_starts=0.2,
)


@pytest.fixture(scope="module")
def result():
    problem, sgd = dimfree.TwoLayer(8, 1, "erf"), dimfree.OnlineSGD(0.4)
    return dimfree.regimes(problem, sgd, d=400, alpha=20.0, key=jax.random.key(0))


@pytest.mark.slow
def test_expected_errors_are_those_measured(result):
    """The laws, with sizes from another start and other runs."""
    for name in LIMITS:
        assert 1 / 1.7 < result.measured[name] / result.expected[name] < 1.7, str(result)
    smallest = min(result.measured.values())
    assert result.measured[result.recommended] < 1.5 * smallest, str(result)
    assert result.measured["mean field"] > 3 * smallest  # eight neurons are not many


@pytest.mark.slow
def test_the_report_has_a_row_for_each_limit(result):
    text = str(result)
    assert text.startswith(f"Use the limit {result.recommended!r}: p = 8, d = 400")
    for name in LIMITS:
        assert f"\n  {name}" in text
    assert text.count("<-") == 1


def test_the_laws_of_the_plane():
    """Each limit has its region: error terms as powers of p, d and the rate."""
    names = list(LIMITS)

    def best(p, d, noise):
        return names[int(SCALES.recommended(p, d, noise))]

    assert best(2, 10**6, 0.1) == "ODE"
    assert best(2, 10**6, 1e-8) == "gradient flow"
    assert best(5 * 10**4, 10**4, 2e-5) == "dimension-free"
    assert best(10**5, 10, 1e-3) == "mean field"
    errors = [SCALES.errors(p, 10**12, 1e-20)["dimension-free"] for p in (10, 1000)]
    np.testing.assert_allclose(errors[0] / errors[1], 100, rtol=1e-2)
    errors = [SCALES.errors(10, d, 0.1)["ODE"] for d in (100, 10_000)]
    np.testing.assert_allclose(errors[0] / errors[1], 10)
    errors = [SCALES.errors(10, 10**12, noise)["gradient flow"] for noise in (0.1, 0.001)]
    np.testing.assert_allclose(errors[0] / errors[1], 100, rtol=1e-3)


@pytest.mark.slow
def test_scales_of_one_width_serve_another_without_simulation(result):
    problem, sgd = dimfree.TwoLayer(4096, 1, "erf"), dimfree.OnlineSGD(8.0)
    far = dimfree.regimes(problem, sgd, 1000, 512.0, key=jax.random.key(0), scales=result.scales)
    assert far.measured is None
    assert "too long to simulate" in str(far)
    assert far.recommended in ("mean field", "dimension-free")
    np.testing.assert_allclose(far.rates["ODE"], (8 / 4096 / 1000) ** 0.5)


@pytest.mark.slow
def test_the_picture_shows_regions_and_the_point(result):
    axes = dimfree.plot.regimes(result)
    words = {text.get_text() for text in axes.texts}
    assert set(LIMITS) <= words
    assert f"p = 8, rate {0.4:g}" in words
    dot = axes.lines[-1]
    np.testing.assert_allclose(dot.get_xdata(), np.log(8) / np.log(400))
    np.testing.assert_allclose(dot.get_ydata(), -np.log(0.4) / np.log(400))
    axes.figure.canvas.draw()
    plt.close("all")


def test_what_has_no_regimes_is_refused_in_words():
    names = {"dimfree": dimfree, "sgd": dimfree.OnlineSGD(1.0), "key": jax.random.key(0)}
    names["changing"] = dimfree.OnlineSGD(lambda alpha: 1 / (1 + alpha))
    assert_refused(
        names,
        {
            "dimfree.regimes(dimfree.Mixture.binary(2, 1.0), sgd, 10, 1.0, key=key)": "two-layer networks",
            "dimfree.regimes(dimfree.TwoLayer(2, normalisation='sqrt'), sgd, 10, 1.0, key=key)": "normalisation",
            "dimfree.regimes(dimfree.TwoLayer(2), changing, 10, 1.0, key=key)": "constant rates",
            "dimfree.regimes(dimfree.TwoLayer(2), sgd, 1, 1.0, key=key)": "d = 1",
            "dimfree.regimes(dimfree.TwoLayer(2), sgd, 9, 0.0, key=key)": "alpha = 0.0 was given; it must be positive",
            "dimfree.regimes(dimfree.PhaseRetrieval(), dimfree.OnlineSGD(1e3), 9, 1.0, key=key)": "1000 diverge",
            "dimfree.plot.regimes(sgd)": "pass what dimfree.regimes(...) gives",
        },
    )


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a hundred points, each simulated
@pytest.mark.parametrize(("activation", "widths"), [("erf", (4, 8, 16, 32)), ("relu", (2, 4, 8))])
def test_the_recommended_limit_is_about_the_best(activation, widths):
    """At random points of the plane: within a factor 1.5 of the smallest measured error, in 95 of 100."""
    rng, points, time, scales, ratios = np.random.default_rng(0), 100, 1.5, None, []
    while len(ratios) < points:
        p, d = int(rng.choice(widths)), int(np.exp(rng.uniform(np.log(4), np.log(2000))))
        noise = float(np.exp(rng.uniform(np.log(1e-3), np.log(0.6))))
        if time * d / noise > 6_000:  # steps of a run
            continue
        result = dimfree.regimes(
            dimfree.TwoLayer(p, 1, activation),
            dimfree.OnlineSGD(noise * p),
            d,
            time / noise,
            key=jax.random.key(len(ratios)),
            scales=scales,
            measure=True,
        )
        scales = result.scales
        ratios.append(result.measured[result.recommended] / min(result.measured.values()))
    assert np.mean(np.array(ratios) < 1.5) >= 0.95, sorted(ratios)[-8:]
