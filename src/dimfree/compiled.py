"""Compiled programs, kept from one process to the next."""

import logging
import os
import sys
from pathlib import Path

SWITCH = "DIMFREE_KEEP_COMPILED"  # set to 1 in the environment of a library's user


def settings() -> dict[str, str]:
    """What the environment tells JAX, so that programs are compiled once and not once a day; what is set stays.

    JAX keeps no program that calls back into Python, as Equinox's run-time errors do. Diffrax has two in every solve,
    about times that are not sorted; times are checked here before a solve, and with `nan` there is no call back.
    """
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    usual = {
        "JAX_COMPILATION_CACHE_DIR": str(Path(home) / "dimfree" / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "EQX_ON_ERROR": "nan",
    }
    return {name: os.environ.get(name, value) for name, value in usual.items()}


def keep() -> None:
    """Keep what this process compiles, and use what others have compiled."""
    new = {name: value for name, value in settings().items() if name not in os.environ}
    os.environ.update(new)
    jax = sys.modules.get("jax")
    if jax is not None:  # it has read its environment
        for name, value in new.items():
            if name.startswith("JAX_"):
                jax.config.update(name.lower(), float(value) if name.endswith("SECS") else value)


class Announcement(logging.Handler):
    """One line on the error stream where the first program is compiled that was not kept: there a wait begins."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.said = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.said and "CACHE MISS" in record.getMessage():
            self.said = True
            print(f"Compiling, once: programs are kept in {settings()['JAX_COMPILATION_CACHE_DIR']}.", file=sys.stderr)

    def start(self) -> None:
        """Listen to what JAX logs of its compiler, which is the only sign before a program is compiled."""
        logger = logging.getLogger("jax._src.compiler")
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)
