"""Studies in processes of their own, as a user starts them, and ways to disturb them."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import psutil
import yaml

HERE = pathlib.Path(__file__).parent
SOURCE = HERE.parent.parent / "src"

DRAW = {
    "problem": {"name": "PhaseRetrieval"},
    "algorithm": {"name": "OnlineSGD", "sphere": True},
    "axes": {
        "algorithm.learning_rate": {"from": 0.01, "to": 0.2, "points": 8},
        "problem.noise": {"from": 0.0, "to": 7.0, "points": 8},
    },
    "compute": {
        "name": "function",
        "function": "study_functions:draw",
        "quantities": ["mean", "largest"],
        "settings": {"pause": 0.05},
    },
    "cells_per_task": 4,
}
EXITS = {
    "problem": {"name": "PhaseRetrieval"},
    "algorithm": {"name": "OnlineSGD", "sphere": True},
    "axes": {
        "algorithm.learning_rate": {"from": 0.02, "to": 0.2, "points": 12},
        "problem.noise": {"from": 0.0, "to": 4.0, "points": 12},
    },
    "compute": {"name": "exit_time", "d": 30, "alpha": 20.0},
    "runs": 16,
    "cells_per_task": 9,
}

TROUBLE = {
    **DRAW,
    "algorithm": {"name": "OnlineSGD", "learning_rate": 0.1},
    "axes": {"problem.noise": list(range(9))},
    "compute": {"name": "function", "function": "study_functions:trouble", "quantities": ["value"]},
    "cells_per_task": 3,
}
DIVERGING = {
    **EXITS,
    "algorithm": {"name": "OnlineSGD"},
    "axes": {"algorithm.learning_rate": [0.02, 5.0]},
    "compute": {"name": "simulate", "d": 30, "alpha": 5.0},
}


def write_study(directory: pathlib.Path, study: dict) -> pathlib.Path:
    path = directory / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    return path


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE}", "JAX_PLATFORMS": "cpu"}


def start(study: pathlib.Path, store: pathlib.Path, *options: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "dimfree", "study", "run", str(study), "--store", str(store), "--allow-code"]
    return subprocess.Popen(
        [*command, *options],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=study.parent,
    )


def finish(driver: subprocess.Popen, code: int = 0, timeout: float = 500) -> str:
    output, _ = driver.communicate(timeout=timeout)
    assert driver.returncode == code, output
    return output


def run(study: pathlib.Path, store: pathlib.Path, *options: str, code: int = 0) -> str:
    return finish(start(study, store, *options), code)


def done(store: pathlib.Path) -> int:
    return len(list((store / "done").glob("*.json")))


def wait_for(condition, seconds: float = 300, every: float = 0.02) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(every)


def workers(driver: subprocess.Popen) -> list[psutil.Process]:
    """The worker processes of a driver."""
    try:
        children = psutil.Process(driver.pid).children(recursive=True)
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    except psutil.NoSuchProcess:
        return []


def kill(process: psutil.Process) -> None:
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return


def arrays(store: pathlib.Path) -> dict[str, bytes]:
    """All files of the arrays of a store, by name."""
    root = store / "results.zarr"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def free_address() -> str:
    """Of a scheduler that is to be started on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


def start_cluster(address: str, patience: int, **variables: str) -> list[subprocess.Popen]:
    """A scheduler and two workers, which end themselves so many seconds after it."""

    def launch(module: str, *options: str) -> subprocess.Popen:
        command = [sys.executable, "-m", f"distributed.cli.{module}", *options, "--no-dashboard"]
        env = environment() | variables
        return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    host, _, port = address.removeprefix("tcp://").partition(":")
    scheduler = launch("dask_scheduler", "--host", host, "--port", port)
    options = ("--nthreads", "1", "--death-timeout", str(patience))
    return [scheduler, *(launch("dask_worker", address, *options) for _ in range(2))]
