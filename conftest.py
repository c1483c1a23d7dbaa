"""Every test runs with the shapes and types of the library checked at run time."""

import gc
import os
import pathlib
import tempfile
from collections.abc import Iterator

# Workers and repeated runs share what has been compiled; results do not depend on it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path(tempfile.gettempdir()) / "dimfree-test-cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("JAX_ENABLE_X64", "1")  # nobody has to be told

import jax
import pytest
from fast_compilation import compile_fast
from jaxtyping import install_import_hook

install_import_hook(["dimfree", "dimfree_papers"], "typechecker.typecheck")

# Most tests compile longer than they run, and take a quarter less time with programs that are hardly optimised. Not so
# these, the slow ones, and those that ask for the fixture `optimised`.
MOSTLY_RUNNING = {"test_exit_times", "test_fluctuations", "test_square"}


def is_fast_suite(config: pytest.Config) -> bool:
    return config.option.markexpr == "not slow"


def is_hardly_optimised(request: pytest.FixtureRequest) -> bool:
    return is_fast_suite(request.config) and request.module.__name__ not in MOSTLY_RUNNING


def pytest_configure(config: pytest.Config) -> None:
    if is_fast_suite(config):
        compile_fast()


@pytest.fixture(scope="module", autouse=True)
def _programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Programs for one module: a process that keeps all runs out of memory maps after some hundred tests, and crashes.

    Processes that a test starts optimise as little as the test does.
    """
    little = is_hardly_optimised(request)
    jax.config.update("jax_disable_most_optimizations", little)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", str(int(little)))
        yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def optimised(request: pytest.FixtureRequest) -> Iterator[None]:
    """Programs as fast as users have them, for a test that runs longer than it compiles."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", is_hardly_optimised(request))
