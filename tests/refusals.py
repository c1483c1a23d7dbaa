"""How values of the wrong type are refused."""

from typing import Any

import jaxtyping
import pytest

from dimfree import InvalidInput


def assert_refused(names: dict[str, Any], cases: dict[str, str]) -> None:
    """Each call, an expression in these names, raises InvalidInput with its words.

    Without the checked annotations of the test run, which would catch such values first.
    """
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        for call, words in cases.items():
            with pytest.raises(InvalidInput) as refusal:
                eval(call, names)
            assert words in str(refusal.value), call
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
