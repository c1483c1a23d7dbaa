"""Every test runs with the shapes and types of the library checked at run time."""

import os
import pathlib
import tempfile

# Workers and repeated runs share what has been compiled; results do not depend on it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path(tempfile.gettempdir()) / "dimfree-test-cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")

from jaxtyping import install_import_hook

install_import_hook("dimfree", "typechecker.typecheck")
