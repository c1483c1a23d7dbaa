"""Runs spread over several devices or over the cores of one, and how far they are."""

import concurrent.futures
import operator
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..errors import is_concrete
from ..printing import Progress

PATIENCE = 1.0  # seconds between two looks at how far a simulation is, when it can also be interrupted


def devices_for(runs: int, key: PRNGKeyArray) -> list:
    """All devices, where the runs can be spread evenly; else the first."""
    devices = jax.devices()
    return devices if is_concrete(key) and runs % len(devices) == 0 else devices[:1]


def _mesh(devices: list) -> jax.sharding.Mesh:
    return jax.sharding.Mesh(np.asarray(devices), ("runs",))


def spread(runs, devices: list):
    """Arrays with a leading axis of runs, spread over the devices."""
    if len(devices) == 1:
        return runs
    return jax.device_put(runs, jax.sharding.NamedSharding(_mesh(devices), jax.sharding.PartitionSpec("runs")))


def on_each(function, devices, *, runs: int, shared: int):
    """A function of arrays that are spread over the devices, then of some that all have."""
    if len(devices) == 1:
        return function
    split, whole = jax.sharding.PartitionSpec("runs"), jax.sharding.PartitionSpec()
    specs = (split,) * runs + (whole,) * shared
    return jax.shard_map(function, mesh=_mesh(devices), in_specs=specs, out_specs=split, check_vma=False)


def parts_for(number: int, devices: list, fewest: int = 1) -> int:
    """Into how many equal parts to split so many datasets or runs, so that the cores of a CPU work at the same time.

    A product of a matrix with few vectors, or a loop over steps, is computed by one core only. Several devices have
    their parts already, and who has told XLA to use one core gets one. No part has less than the fewest.
    """
    told = "xla_cpu_multi_thread_eigen=false" in os.environ.get("XLA_FLAGS", "")
    if len(devices) > 1 or devices[0].platform != "cpu" or told:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(parts for parts in range(1, max(1, min(cores, number // fewest)) + 1) if number % parts == 0)


def in_parts(tree, number: int) -> list:
    """Arrays with a leading axis, in so many equal parts of it."""
    if number == 1:
        return [tree]
    size = jax.tree.leaves(tree)[0].shape[0] // number
    parts = [slice(first, first + size) for first in range(0, number * size, size)]
    return [jax.tree.map(operator.itemgetter(part), tree) for part in parts]


def joined(parts: list):
    """Arrays that came in parts, whole again."""
    return parts[0] if len(parts) == 1 else _concatenated(parts)


@jax.jit
def _concatenated(parts: list):
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def at_once(function: Callable, *parts: list, together: bool = True) -> list:
    """What a function makes of each part, in a thread for each: JAX lets other threads run while it computes.

    One after the other if not `together`, for the first call: threads that all find a function not compiled would each
    compile it.
    """
    if not together or len(parts[0]) == 1:
        return [function(*part) for part in zip(*parts, strict=True)]
    with concurrent.futures.ThreadPoolExecutor(len(parts[0])) as threads:
        return list(threads.map(lambda *part: jax.block_until_ready(function(*part)), *parts))


def in_segments(
    advance: Callable[[Any, Array], Any], under_way: Any, done: Callable[[Any], int], progress: Progress
) -> Any:
    """What is under way to its end, in segments of about a second, so that progress is seen and Ctrl-C heard.

    **Arguments:**

    - `advance`: what is under way, so many blocks of steps later.
    - `done`: how much of the total of `progress` is done.
    """
    blocks = 8
    while True:
        began = time.perf_counter()
        under_way = jax.block_until_ready(advance(under_way, jnp.asarray(blocks)))
        now = done(under_way)
        progress.show(now)
        if now >= progress.total:
            return under_way
        blocks = max(8, int(blocks * min(8.0, PATIENCE / (time.perf_counter() - began))))
