"""Code in a process of its own, for what a process decides once: imports, precision, devices."""

import subprocess
import sys


def printed_by(code: str, *arguments: str, **options) -> str:
    """What the code prints; its errors are those of the test."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout
