"""All critical points of the population risk of a quadratic network."""

import numpy as np

from ..errors import positive_integer
from ..state import State


def critical_points(width: int, teacher_width: int) -> dict[tuple[int, int], State]:
    r"""All critical points of a quadratic network with equal readouts and orthonormal teachers, up to rotations.

    Those are: of the students in s teacher directions with squared norm $\alpha_1$, and in r directions orthogonal to
    all teachers with squared norm $\alpha_2$; any rotation of the students among themselves, and of the inputs among
    teachers or among the rest, gives another of the family.
    $$ \alpha_2 = \frac{p (1 - s/k)}{s + r + 2}, \quad \alpha_1 = \alpha_2 + \frac pk, \quad
       R = \frac{k - s}{k^2} + \frac{(1 - s/k)^2}{s + r + 2} + \frac{\text{noise}}{2}, \qquad
       s \le k, \; s + r \le p . $$
    In dimension d those with $r \le d - k$ exist. Solutions are s = k; the plateau is s = 0, r = p.

    **Arguments:**

    - `width`, `teacher_width`: p and k, of `TwoLayer(p, k, "square")`.

    **Returns:** the States, by (s, r).

    Bocchi et al. 2026, eqs. (27)-(30), list those with s = 0 or r = 0; the condition for $\alpha$ below (30) lacks a
    factor $\alpha$.
    """
    p, k = positive_integer(width, "width"), positive_integer(teacher_width, "teacher_width")
    points = {}
    for s in range(min(p, k) + 1):
        for r in range(p - s + 1 if s < k else 1):
            orthogonal = p * (1 - s / k) / (s + r + 2)
            aligned = orthogonal + p / k
            norms = np.concatenate([np.full(s, aligned), np.full(r, orthogonal), np.zeros(p - s - r)])
            points[s, r] = State(Q=np.diag(norms), M=np.sqrt(aligned) * np.eye(p, s) @ np.eye(s, k))
    return points
