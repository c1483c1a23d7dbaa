"""Many problems at once: a grid of them, on a distributed engine, into a store that can be resumed."""

try:
    from .opening import open_study
    from .study import Study
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] in ("dimfree", "jax"):
        raise
    from ..extras import install

    raise ImportError(f"Studies need {error.name}: {install('cluster')}", name=error.name) from error

__all__ = ["Study", "open_study"]
