"""Every test runs with the shapes and types of the library checked at run time."""

import gc
import os
import pathlib
import tempfile
from collections.abc import Iterator

# Workers and repeated runs share what has been compiled; results do not depend on it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path(tempfile.gettempdir()) / "dimfree-test-cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")

import jax
import pytest
from jaxtyping import install_import_hook

install_import_hook("dimfree", "typechecker.typecheck")


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_programs() -> Iterator[None]:
    """A process that keeps all it has compiled runs out of memory maps after some hundred tests, and crashes."""
    yield
    jax.clear_caches()
    gc.collect()
