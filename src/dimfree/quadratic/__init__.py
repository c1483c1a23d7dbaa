"""Closed forms of quadratic networks, `TwoLayer(p, k, "square")` with readouts of ones.

- `plateau(limit)`: where the network stays that knows nothing of the teacher, and its rates.
- `norm_learning(limit, start, alpha)`: the way to it.
- `critical_points(width, teacher_width)`: all points at which the gradient of the risk vanishes.
- `closest_solution(problem, start)`: the solution that is found from a start.
- `conserved_frame(state)`: what is conserved on the way there.
- `late_risk(limit, alpha)`: how fast a network wider than its teacher gets there.
- `solution_manifold_dimension(width, teacher_width, d)`: how many solutions there are.
- `degrees_of_freedom(width, d)`: how many functions there are.

Exit times have closed forms too, which `dimfree.exit_time` shows beside its measurements.
"""

from .plateau import norm_learning, plateau
from .solution_manifold import (
    closest_solution,
    conserved_frame,
    critical_points,
    degrees_of_freedom,
    late_risk,
    solution_manifold_dimension,
)

__all__ = [  # noqa: RUF022 (in the order of training)
    "plateau",
    "norm_learning",
    "critical_points",
    "closest_solution",
    "conserved_frame",
    "late_risk",
    "solution_manifold_dimension",
    "degrees_of_freedom",
]
