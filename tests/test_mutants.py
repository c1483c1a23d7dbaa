"""The list of wrong formulas that the tests must catch stays one of the present code; tools/mutants.py runs it."""

import importlib
import pathlib


def test_every_mutant_changes_a_line_that_is_there_once(monkeypatch):
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parent.parent / "tools")
    mutants = importlib.import_module("mutants")
    assert len(mutants.MUTANTS) == 30
    for mutant in mutants.MUTANTS:
        assert mutant.becomes != mutant.line
        mutants.library(mutant)  # raises where the line is not there once
