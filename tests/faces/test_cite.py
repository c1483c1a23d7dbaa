"""BibTeX of what was used."""

import re

import jax
import pytest

import dimfree
from dimfree.citations import reference


def keys(text: str) -> set[str]:
    return set(re.findall(r"^@\w+\{(\w+),", text, re.MULTILINE))


def test_nothing_given_cites_the_library():
    text = dimfree.cite()
    assert keys(text) == {"dimfree"}
    assert dimfree.__version__ in text


def test_a_problem_brings_its_sources():
    problem = dimfree.PhaseRetrieval(width=2)
    assert keys(dimfree.cite(problem)) == {"dimfree", *problem.sources}
    assert keys(dimfree.cite(dimfree.TwoLayer(width=2, activation="erf"))) == {"dimfree", "saad1995", "loureiro2023"}


def test_a_limit_brings_its_own_sources_and_those_of_its_problem():
    problem = dimfree.LocalFields(
        lambda student, teacher, noise, readout: (student[0] - teacher[0]) ** 2, width=1, teacher_width=1
    )
    sgd = dimfree.OnlineSGD(learning_rate=0.1)
    assert keys(dimfree.cite(problem, sgd)) == {"dimfree"}
    assert keys(dimfree.cite(dimfree.gradient_flow(problem, sgd))) == {"dimfree", "saad1995"}
    assert keys(dimfree.cite(dimfree.ode(problem, sgd))) == {"dimfree", "saad1995", "benarous2022"}
    diffusion = {"dimfree", "saad1995", "benarous2022", "arnaboldi2023"}
    assert keys(dimfree.cite(dimfree.sde(problem, sgd, d=100))) == diffusion
    assert keys(dimfree.cite(dimfree.linear_noise(problem, sgd, d=100))) == diffusion


def test_a_trajectory_brings_those_of_its_problem_and_limit():
    state = dimfree.State(Q=[[[1.0]], [[1.0]]], M=[[[0.1]], [[0.1]]])
    trajectory = dimfree.Trajectory(
        alpha=jax.numpy.asarray([0.0, 1.0]),
        state=state,
        outcome=jax.numpy.asarray(0),
        stopped_at=jax.numpy.asarray(jax.numpy.nan),
        problem=dimfree.TwoLayer(width=1, activation="erf"),
        provenance=(("limit", "ODE"),),
    )
    assert keys(dimfree.cite(trajectory)) == {"dimfree", "saad1995", "loureiro2023", "benarous2022"}


def test_entries_come_once_and_their_braces_close():
    text = dimfree.cite(dimfree.PhaseRetrieval(), dimfree.PhaseRetrieval(width=2))
    assert text.count("{saad1995,") == 1
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(("given", "words"), [("a paper", "a paper"), (dimfree.PhaseRetrieval, "Call it first")])
def test_what_cannot_be_cited_is_said(given, words):
    with pytest.raises(dimfree.InvalidInput, match=words):
        dimfree.cite(given)


def test_a_source_in_one_line():
    assert reference("mignacco2021") == (
        "Mignacco, Urbani & Zdeborová 2021, Machine Learning: Science and Technology 2 (035029), "
        "<https://arxiv.org/abs/2103.04902>"
    )
    assert reference("saad1995").startswith("Saad & Solla 1995, Physical Review E 52 (4225")
    assert "<" not in reference("loureiro2023")
