"""BibTeX of what was used."""

import re

import jax
import numpy as np
import pytest

import dimfree


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


def test_tasks_bring_the_source_of_their_kind_and_those_of_each_task():
    found = [
        dimfree.Tasks.switching(2, 0.6, 40.0),
        dimfree.Tasks.drifting(2, 0.1),
        dimfree.Tasks.curriculum(2, 40.0, teacher_width=2),
    ]
    own = [keys(dimfree.cite(problem)) - {"dimfree", "saad1995", "loureiro2023"} for problem in found]
    assert own == [{"lee2021"}, {"biehl1993"}, {"saglietti2022"}]


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
    limit = dimfree.ode(dimfree.TwoLayer(width=1, activation="erf"), dimfree.OnlineSGD(learning_rate=0.1))
    solved = dimfree.solve(limit, dimfree.State(Q=[[1.0]], M=[[0.1]]), 0.1)
    assert keys(dimfree.cite(solved)) == {"dimfree", "saad1995", "loureiro2023", "benarous2022"}


def test_reused_data_brings_the_sources_of_its_mean_field_theory():
    for algorithm in (dimfree.GradientDescent(0.1, 2.0), dimfree.Langevin(0.1, 2.0, 1.0)):
        assert keys(dimfree.cite(algorithm)) == {"dimfree"}
    assert keys(dimfree.cite(dimfree.PersistentSGD(0.1, 2.0, 0.5, 1.0))) == {"dimfree", "mignacco2021"}
    start, key = dimfree.State(Q=[[1.0]], M=[[0.8]]), jax.random.key(0)
    descent = dimfree.GradientDescent(0.1, 2.0, sphere=True)
    problem = dimfree.PhaseRetrieval()
    limit = dimfree.dmft(problem, descent, paths=64)
    solution = dimfree.solve(limit, start, [0.0, 0.1, 0.2], key=key)
    for result in (limit, solution, solution.populations):
        assert keys(dimfree.cite(result)) == {"dimfree", *problem.sources, "mignacco2021"}


def test_a_rescaled_limit_brings_its_source():
    limit = dimfree.RescaledLimit(np.eye(1), np.eye(1), ("M[0,0]",))
    assert keys(dimfree.cite(limit)) == {"dimfree", "benarous2022"}


def test_entries_come_once_and_their_braces_close():
    text = dimfree.cite(dimfree.PhaseRetrieval(), dimfree.PhaseRetrieval(width=2))
    assert text.count("{saad1995,") == 1
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(("given", "words"), [("a paper", "a paper"), (dimfree.PhaseRetrieval, "Call it first")])
def test_what_cannot_be_cited_is_said(given, words):
    with pytest.raises(dimfree.InvalidInput, match=words):
        dimfree.cite(given)
