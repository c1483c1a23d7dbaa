"""The list of wrong formulas that the tests must catch stays one of the present code; tools/mutants.py runs it."""

from mutants import MUTANTS, TABLE, library


def test_every_mutant_changes_a_line_that_is_there_once():
    for mutant in MUTANTS:
        assert mutant.becomes != mutant.line
        library(mutant)  # raises where the line is not there once


def test_every_mutant_was_run_and_killed():
    rows = TABLE.rows().values()
    assert [(row["number"], row["what"], row["file"], row["verdict"]) for row in rows] == [
        (str(number), mutant.what, mutant.file, "killed") for number, mutant in enumerate(MUTANTS, 1)
    ]
