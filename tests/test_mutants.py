"""The list of wrong formulas that the tests must catch stays one of the present code; tools/mutants.py runs it."""

from mutants import MUTANTS, ROOT, TABLE, library


def test_every_mutant_changes_a_line_that_is_there_once():
    for mutant in MUTANTS:
        assert mutant.becomes != mutant.line
        library(mutant)  # raises where the line is not there once


def test_every_mutant_was_run_and_killed():
    rows = TABLE.rows().values()
    assert [(row["number"], row["what"], row["file"], row["verdict"]) for row in rows] == [
        (str(number), mutant.what, mutant.file, "killed") for number, mutant in enumerate(MUTANTS, 1)
    ]


def test_the_tests_that_killed_them_are_there():
    for mutant in MUTANTS:
        files = [word.split("::")[0] for word in mutant.tests.split() if word.startswith("tests/")]
        assert files, mutant
        assert all((ROOT / file).exists() for file in files), mutant
    for row in TABLE.rows().values():
        file, test = row["test"].split("::", 1)
        assert f"def {test.split('[', 1)[0]}(" in (ROOT / "tests" / file).read_text(), row
