"""Who can reach a cluster: by the sockets that are really open."""

import signal
import subprocess
import sys
import time

import pytest
import yaml

from processes import listening

LOOPBACK = {"127.0.0.1", "::1"}


def end(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=60)
    finally:
        process.kill()


@pytest.mark.slow
def test_a_local_cluster_and_its_dashboard_listen_on_this_machine_only(tmp_path):
    study = {
        "problem": {"name": "PhaseRetrieval"},
        "algorithm": {"name": "OnlineSGD", "learning_rate": 0.05},
        "axes": {"problem.noise": {"from": 0.0, "to": 1.0, "points": 64}},
        "compute": {"name": "exit_time", "d": 200, "alpha": 100.0},
        "runs": 64,
        "cells_per_task": 1,
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    command = [sys.executable, "-m", "dimfree", "study", "run", "study.yaml", "--workers", "2"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen: set[str] = set()
    try:
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < 240:
            seen |= listening(process.pid)
            if len(list(tmp_path.glob("study.store/done/*.json"))) >= 2:  # workers are up, and at work
                break
            time.sleep(0.1)
        seen |= listening(process.pid)
    finally:
        end(process)
    assert seen
    assert seen <= LOOPBACK
