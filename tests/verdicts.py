"""What the statements of every paper must pass."""


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
