"""The list of wrong formulas that the tests must catch stays one of the present code; tools/mutants.py runs it."""

from mutants import MUTANTS, library


def test_every_mutant_changes_a_line_that_is_there_once():
    assert len(MUTANTS) == 30
    for mutant in MUTANTS:
        assert mutant.becomes != mutant.line
        library(mutant)  # raises where the line is not there once
