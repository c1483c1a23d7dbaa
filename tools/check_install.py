"""Check an environment that holds the installed wheel: it is complete, and it brought its core dependencies only.

    python tools/check_install.py

Run it with the interpreter of an environment into which nothing but the wheel was installed.
"""

import importlib
import importlib.metadata
import re
import sys
from pathlib import Path

from dependencies import closure, normal

OPTIONAL = {"Study", "open_study"}  # of the extra `cluster`
TOOLS = {"pip", "setuptools", "wheel", "uv"}
NEVER = {"dask", "distributed", "zarr", "pytest", "hypothesis", "beartype", "sphinx", "ruff", "pyright"}


def main() -> None:
    expected = set(closure("dimfree"))
    installed = {normal(dist.name) for dist in importlib.metadata.distributions()}
    if extra := installed - expected - TOOLS:
        sys.exit(f"installed, but no core dependency asks for it: {sorted(extra)}")
    if heavy := installed & NEVER:
        sys.exit(f"a core dependency brought what the core must do without: {sorted(heavy)}")

    dimfree = importlib.import_module("dimfree")
    home = Path(str(dimfree.__file__)).parent
    checkout = Path(__file__).resolve().parent.parent
    if home.is_relative_to(checkout / "src"):
        sys.exit(f"dimfree was imported from the checkout ({home}), not from the wheel")
    if not (home / "py.typed").is_file():
        sys.exit("the wheel lacks py.typed")
    version = importlib.metadata.version("dimfree")
    if dimfree.__version__ != version:
        sys.exit(f"dimfree.__version__ is {dimfree.__version__}, the wheel says {version}")
    if missing := [name for name in dimfree.__all__ if name not in OPTIONAL and not hasattr(dimfree, name)]:
        sys.exit(f"dimfree.__all__ names what does not exist: {missing}")
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", version), version
    print(f"dimfree {version}: {len(installed)} distributions, all of them core dependencies")


if __name__ == "__main__":
    main()
