"""Runs spread over several devices, and how far they are."""

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from ..errors import is_concrete

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


class Progress:
    """A bar, for who asked for it; `cost` is what is said before, or None for no bar."""

    def __init__(self, cost: str | None, total: int):
        self.bar = None
        if cost is not None:
            import rich.console
            import rich.progress

            # Not where results go: a program may be reading those.
            console = rich.console.Console(stderr=True)
            console.print(cost)
            self.bar = rich.progress.Progress(console=console, transient=True)
            self.task = self.bar.add_task("simulating", total=total)
            self.bar.start()

    def show(self, done: int) -> None:
        """How much of the total is done."""
        if self.bar is not None:
            self.bar.update(self.task, completed=done)

    def end(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()
