"""The check of speed: a table that is worse than recorded fails, one that is not passes."""

import importlib
import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def benchmarks(monkeypatch):
    """The modules of the repository's benchmarks, by name."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def test_memory_is_that_of_the_process_alone(benchmarks):
    held = np.ones(50_000_000)  # 400 MB, which Linux counts for a process that is started meanwhile
    assert 5 < benchmarks("timing").in_process("pass")["MB"] < 100
    del held


def test_only_ratios_that_grew_by_more_than_half_are_worse(benchmarks):
    recorded = benchmarks("recorded")
    known = {"same": 1.1, "better": 1.1, "a bit worse": 1.0, "worse": 1.0, "no number": 1.0, "not measured": 1.0}
    table = {
        "same": {"ratio": 1.1, "least": 1.1},
        "better": {"ratio": 0.2, "least": 0.3},
        "a bit worse": {"ratio": 9.0, "least": 1.49},
        "worse": {"ratio": 1.6, "least": 1.51},
        "no number": {"ratio": 1.0, "least": float("nan")},
        "not recorded": {"ratio": 9.0, "least": 9.0},
    }
    found = recorded.worse(table, known)
    assert [each.name for each in found] == ["worse", "no number"]
    assert "1.51 times worse" in str(found[0])


@pytest.mark.parametrize(("slowness", "fails"), [((0.002, 0.002), False), ((0.02, 0.02, 0.02), True)])
def test_the_command_fails_when_a_call_has_become_slower(benchmarks, monkeypatch, tmp_path, capsys, slowness, fails):
    command, timing, subject = benchmarks("__main__"), benchmarks("timing"), benchmarks("solving")
    waits = iter(slowness)

    def invented():
        wait = next(waits)
        return timing.against(lambda: time.sleep(wait), lambda: time.sleep(0.002), fewest=5, budget=0.0)

    monkeypatch.setattr(command, "SUBJECTS", (subject,))
    monkeypatch.setattr(subject, "QUICK", [invented])
    monkeypatch.setattr(command, "RECORD", tmp_path / "recorded.json")
    (tmp_path / "recorded.json").write_text(json.dumps({"invented": 1.0}))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", "--check"])
    if fails:
        with pytest.raises(SystemExit, match=r"invented.*is recorded.*worse"):
            command.main()
    else:
        command.main()
        assert "no ratio is worse" in capsys.readouterr().out


def test_what_is_recorded_is_measured_by_the_quick_subset(benchmarks):
    command, history = benchmarks("__main__"), benchmarks("history")
    quick = {each.__name__ for subject in command.SUBJECTS for each in subject.QUICK}
    recorded = json.loads(command.RECORD.read_text())
    assert set(recorded) == quick == set(history.BENCHMARKS)
    assert all(ratio > 0 for ratio in recorded.values())


def test_ratios_are_those_of_the_turns(benchmarks):
    timing = benchmarks("timing")
    times = timing.Times({"ours": timing.np.array([2.0, 6.0, 4.0]), "theirs": timing.np.array([1.0, 2.0, 4.0])})
    times.first = {"ours": 10.0, "theirs": 2.5}
    row = timing.compared(times, "ours", "theirs", goal=1.0)
    assert (row.ratio, row.low, row.high, row.least) == (2.0, 1.5, 2.5, 2.0)
    assert row.first == {"ours": 6.0, "theirs": 0.5}
