"""First and second derivatives, in the weights, of the risk of a network of rectified linear units."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def relu_derivatives(
    vectors: Float[Array, "fields n"], weights: Float[Array, " fields"], width: int
) -> tuple[Float[Array, "width n"], Float[Array, "width n width n"], Float[Array, "width width"]]:
    r"""Gradient, Hessian and bulk block of $\tfrac12 \mathbb{E}[e^2]$, $e = \sum_s c_s \max(v_s \cdot x, 0)$, in the
    first `width` vectors.

    With $\theta$ the angle of $v_i$ and $v_s$, $\hat b$ and $\hat m$ the directions of $\hat v_i \pm \hat v_s$, and
    $\hat n$ that of the part of $v_s$ orthogonal to $v_i$,
    $$\mathbb{E}[1(u_i > 0)\, 1(u_s > 0)\, x x^\top] = \tfrac{\pi - \theta}{2\pi} I
    + \tfrac{\sin\theta}{2\pi} (\hat b \hat b^\top - \hat m \hat m^\top), \qquad
    \mathbb{E}[\delta(u_i) \max(u_s, 0)\, x x^\top] = \tfrac{|v_s| \sin\theta}{2\pi |v_i|}
    (I - \hat v_i \hat v_i^\top + \hat n \hat n^\top) .$$
    Both are continuous where two vectors are parallel or opposite: the risk is twice differentiable there, although
    as a function of the overlaps it is not. No student may be zero. The bulk block is the Hessian for directions
    orthogonal to all vectors, the same for each of them.

    **Arguments:**

    - `vectors`: students first, then teachers, in any frame that holds them all, shape (fields, n).
    - `weights`: the weights $c$ with which their outputs enter the error, shape (fields,).
    - `width`: the number of students.

    Cho & Saul, NeurIPS 2009 (the gradient); Safran & Shamir, ICML 2018, Section 4.1.1 (the Hessian).
    """
    students, own = vectors[:width], weights[:width]
    lengths = jnp.linalg.norm(vectors, axis=1)
    unit = vectors / jnp.where(lengths > 0, lengths, 1)[:, None]
    unit_students = unit[:width]
    cosine = unit_students @ unit.T
    # From the residual: 1 - cosine^2 would lose half of the digits where vectors almost coincide.
    residual = unit[None, :, :] - cosine[:, :, None] * unit_students[:, None, :]
    residual = jnp.where(np.eye(width, len(weights), dtype=bool)[:, :, None], 0, residual)
    sine = jnp.linalg.norm(residual, axis=2)
    both = (np.pi - jnp.arctan2(sine, cosine)) / (2 * np.pi)
    normal = _directions(residual)

    gradient = own[:, None] * (
        (both * weights) @ vectors + (sine * weights * lengths).sum(axis=1)[:, None] * unit_students / (2 * np.pi)
    )

    identity = jnp.eye(vectors.shape[1])
    bisector = _directions(unit_students[:, None, :] + unit_students[None, :, :])
    across = _directions(unit_students[:, None, :] - unit_students[None, :, :])
    spread = jnp.einsum("ija,ijb->ijab", bisector, bisector) - jnp.einsum("ija,ijb->ijab", across, across)
    slopes = both[:, :width, None, None] * identity + sine[:, :width, None, None] * spread / (2 * np.pi)
    hessian = jnp.einsum("i,j,ijab->iajb", own, own, slopes)
    kink = own[:, None] * weights * sine * lengths / (2 * np.pi * jnp.linalg.norm(students, axis=1)[:, None])
    tangent = identity - jnp.einsum("ia,ib->iab", unit_students, unit_students)
    curvature = kink.sum(axis=1)[:, None, None] * tangent + jnp.einsum("is,isa,isb->iab", kink, normal, normal)
    hessian = hessian + jnp.einsum("ij,iab->iajb", jnp.eye(width), curvature)

    bulk = own[:, None] * own * both[:, :width] + jnp.diag(kink.sum(axis=1))
    return gradient, hessian, bulk


def _directions(vectors: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Vectors of length one; zero where there is no direction, which then has no weight either."""
    lengths = jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    return jnp.where(lengths > 0, vectors / jnp.where(lengths > 0, lengths, 1), 0)
