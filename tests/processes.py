"""Processes that tests start: code on its own, for what a process decides once, and who can reach it."""

import subprocess
import sys

import psutil


def printed_by(code: str, *arguments: str, **options) -> str:
    """What the code prints; its errors are those of the test."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def listening(pid: int) -> set[str]:
    """The addresses at which a process and those it has started listen."""
    process, found = psutil.Process(pid), set()
    for each in [process, *process.children(recursive=True)]:
        try:
            connections = each.net_connections(kind="tcp")
        except psutil.NoSuchProcess:
            continue
        found |= {connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN}
    return found
