"""Information exponents and leaps of known targets, their invariance, and the drift that they predict."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import erf

import dimfree


def he5(x):
    return x**5 - 10 * x**3 + 15 * x


def sine_without_line(x):
    return jnp.sin(x) - jnp.exp(-0.5) * x


def staircase(z):
    return z[0] + z[0] * z[1] + z[0] * z[1] * z[2]


LINKS = [
    ("linear", 1, 1),
    ("he2", 1, 2),
    ("he3", 1, 3),
    ("he4", 1, 4),
    (he5, 1, 5),
    ("relu", 1, 1),
    ("tanh", 1, 1),
    ("abs", 1, 2),
    (staircase, 3, 1),
    (sine_without_line, 1, 3),
]


@pytest.mark.parametrize(("link", "directions", "expected"), LINKS)
def test_known_links_have_their_exponent_and_number_of_samples(link, directions, expected):
    found = dimfree.information_exponent(link, directions=directions)
    assert found.exponent == expected
    assert found.leap == expected  # of the staircase too: it has no leap above one
    assert found.directions_seen == directions
    assert found.zero < 1e-8
    assert found.sample_complexity == {1: "d", 2: "d log d", 3: "d^2", 4: "d^3", 5: "d^4"}[expected]
    assert found.sample_power == max(1, expected - 1)
    assert found.rate_power == -max(0, expected - 2) / 2


# The leaps by hand: order of what is new, and number of directions.
TARGETS = {
    "staircase": (staircase, 3, [(1, 1), (1, 1), (1, 1)]),
    "product": (lambda z: z[0] * z[1] * z[2], 3, [(3, 3)]),
    "one leap": (lambda z: z[0] + z[0] * z[1] * z[2], 3, [(1, 1), (2, 2)]),
    # Along the axes all leaps are one; but z1 - z2 enters by its square alone.
    "no axes": (lambda z: z[0] + z[1] + z[0] * z[1], 2, [(1, 1), (2, 1)]),
    "unseen": (lambda z: z[0] ** 3 - 3 * z[0], 2, [(3, 1)]),
    "even": (lambda z: z[0] ** 2 + z[1] ** 2 + z[0] * z[1], 2, [(2, 2)]),
    "kinks": (lambda z: jnp.abs(z[0]) * z[1], 2, [(1, 1), (2, 1)]),
}


@pytest.mark.parametrize("name", TARGETS)
def test_known_targets_have_their_leaps(name):
    target, k, expected = TARGETS[name]
    found = dimfree.information_exponent(target, 6, directions=k)
    assert [(leap.size, len(leap.directions)) for leap in found.leaps] == expected
    directions = np.concatenate([leap.directions for leap in found.leaps])
    np.testing.assert_allclose(directions @ directions.T, np.eye(len(directions)), atol=1e-12)


@pytest.mark.parametrize("name", ["staircase", "one leap", "no axes"])
def test_leaps_do_not_depend_on_the_axes(name):
    target, k, expected = TARGETS[name]
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(k, k)))[0]
    turned = dimfree.information_exponent(lambda z: target(jnp.asarray(rotation) @ z), 6, directions=k)
    straight = dimfree.information_exponent(target, 6, directions=k)
    assert [(leap.size, len(leap.directions)) for leap in turned.leaps] == expected
    np.testing.assert_allclose(turned.coefficients, straight.coefficients, atol=1e-10)
    for there, here in zip(turned.leaps, straight.leaps, strict=True):
        span = there.directions @ rotation.T  # the same subspaces, turned
        np.testing.assert_allclose(span.T @ span, here.directions.T @ here.directions, atol=1e-8)


def test_a_committee_sees_the_mean_of_its_teachers_first_and_each_by_a_leap_of_two():
    found = dimfree.information_exponent(dimfree.TwoLayer(8, 3, "erf"))
    assert [(leap.size, len(leap.directions)) for leap in found.leaps] == [(1, 1), (2, 2)]
    np.testing.assert_allclose(np.abs(found.leaps[0].directions), 3**-0.5, atol=1e-12)
    # The same by quadrature over all three.
    link = dimfree.MultiIndex(lambda z: jnp.mean(erf(z / np.sqrt(2.0))), width=8, teacher_width=3, activation="erf")
    direct = dimfree.information_exponent(link, 4)
    assert [(leap.size, len(leap.directions)) for leap in direct.leaps] == [(1, 1), (2, 2)]
    np.testing.assert_allclose(direct.coefficients, found.coefficients[:5], atol=1e-8)


def test_a_student_sees_only_the_orders_that_it_has():
    relu = dimfree.information_exponent(dimfree.SingleIndex("relu", activation="he2"))
    assert relu.exponent == 2
    assert abs(relu.coefficients[1]) == pytest.approx(0.5)
    blind = dimfree.information_exponent(dimfree.SingleIndex("tanh", activation="he2"))
    assert blind.exponent is None
    assert blind.leap is None
    assert blind.sample_power == np.inf
    assert "sees nothing" in repr(blind)


def he9(x):
    return (x**9 - 36 * x**7 + 378 * x**5 - 1260 * x**3 + 945 * x) / math.sqrt(math.factorial(9))


@pytest.mark.parametrize(
    ("target", "directions", "low", "high"),
    [
        (lambda z: z[0] + he9(z[0]) * z[1], 2, "d for 1 of 2 directions; the others are not seen up to order 8", "d"),
        (
            lambda z: z[0] + z[1] ** 2 + he9(z[0]) * z[1],
            2,
            "d log d by orders up to 8; higher ones may need fewer",
            "d",
        ),
        (he9, 1, "at least d^8, as nothing is seen up to order 8", "d^8"),
    ],
)
def test_the_number_of_samples_carries_its_condition_where_the_order_was_a_cut_off(target, directions, low, high):
    assert dimfree.information_exponent(target, directions=directions).sample_complexity == low
    assert dimfree.information_exponent(target, 10, directions=directions).sample_complexity == high


@pytest.mark.parametrize(("size", "expected"), [(1e-6, 1), (1e-14, 3)])
def test_what_counts_as_zero_is_said(size, expected):
    found = dimfree.information_exponent(lambda x: x**3 - 3 * x + size * x)
    assert found.exponent == expected
    assert (size > found.zero) == (expected == 1)
    assert f"zero means at most {found.zero:.1g}" in repr(found)


@pytest.mark.parametrize("name", ["erf", "square", "he2", "he3", "he4", "relu"])
def test_the_overlap_grows_by_the_power_of_the_exponent(name):
    """On the sphere dm/dalpha = learning_rate kappa c^2 m^(kappa - 1) near m = 0, from the closed-form drift."""
    found = dimfree.information_exponent(name)
    flow = dimfree.gradient_flow(dimfree.SingleIndex(name), dimfree.OnlineSGD(0.3, sphere=True))
    kappa, m = found.exponent, 1e-3
    assert kappa is not None
    drift = float(flow.drift(0.0, dimfree.State(Q=[[1.0]], M=[[m]])).M[0, 0])
    assert drift == pytest.approx(0.3 * kappa * found.coefficients[kappa] ** 2 * m ** (kappa - 1), rel=5e-3)


def test_the_exponent_prints_in_words():
    text = repr(dimfree.information_exponent(staircase, 4, directions=3))
    assert "Information exponent of staircase: 1" in text
    assert "1 direction by a leap of 1, then 1 direction" in text
    assert "learning rate: fixed; samples: of the order d" in text
    he3 = repr(dimfree.information_exponent("he3"))
    assert "learning rate: of the order d^-0.5; samples: of the order d^2" in he3
    assert "1 of 2 directions are not seen" in repr(dimfree.information_exponent(TARGETS["unseen"][0], 4, directions=2))


def test_what_has_no_exponent_is_refused_in_words():
    with pytest.raises(dimfree.InvalidInput, match="give it the link function"):
        dimfree.information_exponent(dimfree.SpikedTensor(order=3, snr=2.0))
    with pytest.raises(dimfree.InvalidInput, match="order"):
        dimfree.information_exponent("relu", 0)
