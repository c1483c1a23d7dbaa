import dimfree


def test_every_claim_has_its_verdict():
    claims = (*dimfree.reproduce("yourname2027", "fig1").claims, *dimfree.claims("yourname2027"))
    assert [(claim.where, claim.verdict) for claim in claims] == [("Fig. 1", "agrees"), ("eq. (1)", "agrees")]
