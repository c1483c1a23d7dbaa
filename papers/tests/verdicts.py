"""What the statements and figures of every paper must pass."""

import numpy as np


def assert_verdicts(claims, expected: dict[str, str]) -> None:
    """Each has its verdict, and clearly so."""
    assert {claim.where: claim.verdict for claim in claims} == expected
    assert len(claims) == len(expected)
    for claim in claims:
        # A misprint is one only if it is far from the tolerance, and what agrees does so with room.
        error = claim.error(claim.printed)
        if claim.verdict == "agrees":
            assert error <= 0.5 * claim.tolerance, claim.where
        else:
            assert error > max(2 * claim.tolerance, 1e-3), claim.where
        if claim.verdict == "misprint":
            assert claim.error(claim.corrected) <= 0.5 * claim.tolerance, claim.where


def assert_figure(made, expected: dict[str, str], panels: int, legends: int | None = None) -> None:
    """A figure has its verdicts, and panels that are lettered, labelled and filled; each a legend, or as many."""
    assert {claim.where: claim.verdict for claim in made.claims} == expected
    drawn = made.picture.axes
    assert [axes.get_title(loc="left")[:3] for axes in drawn] == [f"({letter})" for letter in "abcdef"[:panels]]
    for axes in drawn:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.lines
    assert sum(axes.get_legend() is not None for axes in drawn) == (panels if legends is None else legends)
    assert all(np.isfinite(data).all() for data in made.data.data_vars.values())
    made.picture.canvas.draw()
