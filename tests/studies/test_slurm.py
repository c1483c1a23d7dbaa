"""A study on a real SLURM: its controller and a node, started on this machine for the test."""

import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest
from drivers import DRAW, arrays, done, finish, run, start, wait_for, write_study

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not (shutil.which("slurmctld") and shutil.which("slurmd") and os.geteuid() == 0),
        reason="needs root and SLURM (apt install slurm-wlm)",
    ),
]

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=sched_interval=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=4000 State=UNKNOWN
PartitionName=short Nodes={host} Default=YES MaxTime=60 State=UP
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    directory = tmp_path / "slurm"
    for name in ("state", "spool"):
        (directory / name).mkdir(parents=True)
    configuration = directory / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            host=socket.gethostname().split(".")[0],
            directory=directory,
            controller=free_port(),
            node=free_port(),
            cores=os.cpu_count(),
        )
    )
    monkeypatch.setenv("SLURM_CONF", str(configuration))
    daemons = [
        subprocess.Popen([name, "-D", "-f", str(configuration)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name in ("slurmctld", "slurmd")
    ]
    try:
        wait_for(lambda: "idle" in squeue("sinfo", "-h", "-o", "%T"), 60, every=0.5)
        yield
    finally:
        subprocess.run(["scancel", "--user", "root"], check=False, capture_output=True)
        time.sleep(2)
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


def squeue(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout


def running() -> list[str]:
    return squeue("squeue", "-h", "-t", "RUNNING", "-o", "%A").split()


@pytest.mark.usefixtures("slurm")
def test_a_study_on_slurm_survives_a_cancelled_job(tmp_path):
    study = write_study(tmp_path, DRAW | {"compute": DRAW["compute"] | {"settings": {"pause": 0.5}}})
    run(study, tmp_path / "reference", "--cluster", "inline")
    store: pathlib.Path = tmp_path / "store"
    options = (
        "--cluster",
        "slurm",
        "--workers",
        "2",
        "--queue",
        "short",
        "--walltime",
        "00:30:00",
        "--memory",
        "1500MB",
    )
    driver = start(study, store, *options, "--interface", "lo")
    try:
        wait_for(lambda: done(store) >= 2 and len(running()) >= 1)
        cancelled = running()[0]
        subprocess.run(["scancel", cancelled], check=True)
        wait_for(lambda: cancelled not in running())
        assert done(store) < 16
        assert "16 of 16 tasks" in finish(driver, timeout=600)
    finally:
        driver.kill()
        driver.communicate()
    assert arrays(store) == arrays(tmp_path / "reference")
    wait_for(lambda: not running(), 60, every=0.5)  # jobs end with the study
