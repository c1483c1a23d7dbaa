"""Who can reach what listens: by the sockets that are really open."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import yaml

LOOPBACK = {"127.0.0.1", "::1"}


def listening(process: psutil.Process) -> set[str]:
    """The addresses at which a process and those it has started listen."""
    found = set()
    for each in [process, *process.children(recursive=True)]:
        try:
            connections = each.net_connections(kind="tcp")
        except psutil.NoSuchProcess:
            continue
        found |= {connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN}
    return found


def end(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=60)
    finally:
        process.kill()


def test_the_explorer_listens_on_this_machine_only():
    command = [sys.executable, "-u", "-m", "dimfree", "explore", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        assert "http://127.0.0.1:" in process.stdout.readline()
        assert listening(psutil.Process(process.pid)) == {"127.0.0.1"}
    finally:
        end(process)


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
        driver, began = psutil.Process(process.pid), time.monotonic()
        while process.poll() is None and time.monotonic() - began < 240:
            seen |= listening(driver)
            if len(list(tmp_path.glob("study.store/done/*.json"))) >= 2:  # workers are up, and at work
                break
            time.sleep(0.1)
        seen |= listening(driver)
    finally:
        end(process)
    assert seen
    assert seen <= LOOPBACK
