"""What is installed beyond the core, and the command that installs what is not."""

import importlib.metadata
import re
from collections.abc import Iterable


def packages(extra: str) -> dict[str, str]:
    """The packages of an extra, by name, each as pip is asked for it."""
    asked = [line.split(";") for line in importlib.metadata.requires("dimfree") or []]
    of_extra = [line[0].strip() for line in asked if re.search(rf"extra == ['\"]{extra}['\"]", line[-1])]
    return {re.split(r"[^\w.-]", line)[0]: line for line in of_extra if not line.startswith("dimfree[")}


def absent(names: Iterable[str]) -> list[str]:
    """Those of the packages that are not installed."""
    return [name for name in names if version(name) is None]


def install(extra: str) -> str:
    """The command for what is lacking of an extra: by the packages' names, wherever dimfree itself came from."""
    asked = packages(extra)
    return "pip install " + " ".join(f'"{asked[name]}"' for name in absent(asked))


def version(name: str) -> str | None:
    """Of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
