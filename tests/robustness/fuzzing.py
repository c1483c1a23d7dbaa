"""How examples are drawn by hypothesis."""

from hypothesis import HealthCheck, settings


def fuzz(examples: int):
    """So many examples, the same each time."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
