"""How an equation is integrated, whatever limit it is."""

from .adaptive import solve_adaptively
from .frozen import Frozen
from .paths import paths_at_once, solve_paths
from .settings import DIVERGED_ABOVE, Found, Settings
from .sliding import solve_sliding

__all__ = [
    "DIVERGED_ABOVE",
    "Found",
    "Frozen",
    "Settings",
    "paths_at_once",
    "solve_adaptively",
    "solve_paths",
    "solve_sliding",
]
