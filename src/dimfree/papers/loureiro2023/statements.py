"""The source's statements, each with a verdict."""

from ..claims import Claim
from . import limits, setting, single_index, wide


def statements() -> tuple[Claim, ...]:
    """Every statement that is checked: the setting, the limit of large d, wide networks, single-index models."""
    return (*setting.claims(), *limits.claims(), *wide.claims(), *single_index.claims())
