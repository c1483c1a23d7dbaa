"""How values of the wrong type are refused."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jaxtyping
import pytest

from dimfree import InvalidInput


@contextlib.contextmanager
def as_users_call() -> Iterator[None]:
    """Without the checked annotations of the test run, which would catch values of the wrong type first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def assert_refused(names: dict[str, Any], cases: dict[str, str]) -> None:
    """Each call, an expression in these names, raises InvalidInput with its words."""
    with as_users_call():
        for call, words in cases.items():
            with pytest.raises(InvalidInput) as refusal:
                eval(call, names)
            assert words in str(refusal.value), call
