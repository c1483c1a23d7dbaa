"""The list of wrong formulas that the tests must catch stays one of the present code; tools/mutants.py runs it.

And those that are made of the formulas of a file: what is made, and of what.
"""

import ast
import random

from mutants import MUTANTS, NOTICED, ROOT, TABLE, changed_lines, library
from syntax_mutants import changes, drawn_changes


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


SOURCE = '''
def check(rate: float = 0.5 * 2):
    """Say 2 * rate."""
    if rate > 1:
        raise ValueError(f"{rate * 2}")
    require(rate - 1, "must be positive")


def drift(κ, x, state):  # κ takes two bytes
    x[0] += κ * 0.5 * x.T
    own = {each: x for each in state}
    return jnp.einsum("ij,jk->ik", x[:, None], own) - (x ** 2
        + x) / jnp.sqrt(κ)
'''


def test_formulas_are_changed_and_nothing_else():
    """Annotations, defaults, docstrings and what refuses are left alone; each change stays within its formula."""
    made = {tuple(change.of(SOURCE).splitlines()): change for change in changes(SOURCE)}
    before = SOURCE.splitlines()
    assert all(lines[:8] == tuple(before[:8]) for lines in made)
    assert all(ast.dump(ast.parse("\n".join(lines))) != ast.dump(ast.parse(SOURCE)) for lines in made)
    becomes = {change.becomes for change in made.values()}
    assert becomes >= {
        "x[0] -= κ * 0.5 * x.T",  # a sign
        "(κ * 0.5)",  # a factor dropped
        "(x)",  # a transposition, a power or a term
        "(x[1])",
        "(1.0)",
        "({each: 2 * x for each in state})",
        "(jnp.einsum('ij,jk->ki', x[:, None], own))",
        "(x[None, :])",
        "(jnp.einsum('ij,jk->ik', x[:, None], own) + (x ** 2 + x) / jnp.sqrt(κ))",
        "(-((x ** 2 + x) / jnp.sqrt(κ)))",
        "(x ** (2 + 1))",
        "(κ)",  # a root dropped
    }
    assert len(becomes) < 40


def test_a_seed_draws_the_same_changes_again_one_of_each_line_first():
    first, second, third = (drawn_changes(SOURCE, random.Random(seed)) for seed in (1, 1, 2))
    assert first == second != third
    assert sorted(first) == sorted(changes(SOURCE))
    assert {change.line for change in first[:4]} == {change.line for change in first}


def test_files_whose_formulas_are_changed_have_formulas_and_tests():
    for file, tests in NOTICED.items():
        source = (ROOT / "src" / "dimfree" / file).read_text()
        change = drawn_changes(source, random.Random(0))[0]
        lines = changed_lines(source, change.of(source))
        assert {line[0] for line in lines} == {"-", "+"}, file
        files = [word.split("::")[0] for word in tests.split() if word.startswith("tests/")]
        assert files, file
        assert all((ROOT / each).exists() for each in files), file
