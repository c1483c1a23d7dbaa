"""Where the workers are: on this machine, in SLURM jobs, or at an address; Dask runs them."""

import contextlib
import dataclasses
import logging
import os
import shlex
import sys
from collections.abc import Iterator
from typing import Any, Literal, get_args

import dask.config
from dask.system import CPU_COUNT
from distributed import Client, LocalCluster, Status
from tornado.ioloop import PeriodicCallback

from ..errors import InvalidInput
from ..identity import jax_setting

Kind = Literal["local", "slurm", "address", "inline"]
SILENT = 60.0  # seconds without a sign of life after which a worker is replaced; Dask takes once or twice as long
_TO_START = 180.0  # seconds that a worker has to import what it needs and to come forward
# Dask's workers return freed memory to the system at once. Every array above 128 KiB then costs a page fault for each
# page, and NumPy took four times as long. 32 MiB is the most that glibc takes for the second.
_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**25), "MALLOC_MMAP_THRESHOLD_": str(2**25)}
_RANDOM_NUMBERS = ("jax_default_prng_impl", "jax_threefry_partitionable", "jax_random_seed_offset")
_LOOK_EVERY = 2.0  # seconds, for workers that are gone


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Where a study runs.

    - `kind`: `local` (processes of this machine), `slurm` (jobs), `address` (a Dask scheduler that runs already) or
      `inline` (this process, for debugging).
    - `workers`: processes or jobs; as many as this machine has cores if left out.
    - `memory`: of a worker, such as `"4GB"`; one that takes more is started again.
    - `address`: of the scheduler.
    - `queue`, `account`, `walltime`, `interface`: for SLURM; also from Dask's own file `jobqueue.yaml`.
    """

    kind: Kind = "local"
    workers: int | None = None
    memory: str | None = None
    address: str | None = None
    queue: str | None = None
    account: str | None = None
    walltime: str | None = None
    interface: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InvalidInput(f"cluster = {self.kind!r} was given; choose one of {', '.join(get_args(Kind))}.")
        if (self.kind == "address") != (self.address is not None):
            raise InvalidInput(
                "cluster = 'address' needs the address of a Dask scheduler, such as tcp://127.0.0.1:8786, and no "
                "other kind takes one."
            )

    @property
    def number(self) -> int:
        """How many workers are asked for."""
        return self.workers or (1 if self.kind == "inline" else CPU_COUNT)

    @contextlib.contextmanager
    def connect(self, store: str, silence: float = SILENT) -> Iterator[Client]:
        """A client of the cluster, which ends with it.

        **Arguments:**

        - `store`: a directory that all workers see.
        - `silence`: seconds without a sign of life after which a worker is replaced.
        """
        settings: dict[str, Any] = {
            # A task that is lost with its worker is given back at once: the driver says so, and decides.
            "distributed.scheduler.allowed-failures": 0,
            "distributed.scheduler.worker-ttl": f"{silence} s",
            "distributed.worker.multiprocessing-method": "spawn",
            # What Dask measures of itself takes 7% of a core, which the tasks want; so it takes 3%.
            "distributed.worker.profile.enabled": False,
            "distributed.admin.tick.interval": "500ms",
            "distributed.admin.system-monitor.interval": "5s",
            # Read when a process starts, so it must be there before.
            **{f"distributed.nanny.pre-spawn-environ.{name}": size for name, size in _MEMORY.items()},
        }
        with dask.config.set(settings), contextlib.ExitStack() as stack:
            if self.kind == "address":
                client = Client(self.address, timeout="20s", set_as_default=False)
            else:
                cluster = stack.enter_context(self._local() if self.kind == "local" else self._slurm(store))
                stack.enter_context(_kept_up(cluster, self.number))
                client = Client(cluster, set_as_default=False)
            yield stack.enter_context(client)

    def _local(self) -> LocalCluster:
        return LocalCluster(
            n_workers=self.number,
            threads_per_worker=1,
            processes=True,
            memory_limit=self.memory or "auto",
            host="127.0.0.1",
            # Whoever can reach a scheduler can run code as its owner, on a shared machine also through loopback.
            security=True,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            env=environment(),
            death_timeout=_TO_START,
        )

    def _slurm(self, store: str) -> Any:
        from dask_jobqueue.slurm import SLURMCluster

        variables = environment() | {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        options: dict[str, Any] = {
            "queue": self.queue,
            "account": self.account,
            "walltime": self.walltime,
            "interface": self.interface,
        }
        return SLURMCluster(
            n_workers=self.number,
            cores=1,
            processes=1,
            memory=self.memory or "4GB",
            job_script_prologue=exports,
            python=sys.executable,
            security=True,
            shared_temp_directory=store,
            log_directory=f"{store}/logs",
            scheduler_options={"dashboard_address": "127.0.0.1:0"},
            **{name: value for name, value in options.items() if value is not None},
        )


@contextlib.contextmanager
def _kept_up(cluster: Any, number: int) -> Iterator[None]:
    """Start workers anew whose process or job has ended.

    Dask forgets a worker that was lost and does not come back soon, as on a busy machine or when its job is cancelled.
    With the last of them a study would wait forever.
    """

    def look() -> None:
        for name, worker in list(cluster.workers.items()):
            if worker.status in (Status.closed, Status.failed):
                del cluster.workers[name]
        cluster.scale(number)

    looking = PeriodicCallback(look, _LOOK_EVERY * 1000)
    cluster.loop.add_callback(looking.start)
    try:
        yield
    finally:
        cluster.loop.add_callback(looking.stop)


def environment() -> dict[str, str]:
    """What a worker's environment has: one core each, to be out of each other's way, and JAX set up as it is here."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    return {
        "XLA_FLAGS": flags,
        "NPROC": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **_MEMORY,
        "JAX_ENABLE_X64": os.environ.get("JAX_ENABLE_X64", "1"),
        # A script may have changed them in its own process.
        **{name.upper(): str(jax_setting(name)) for name in _RANDOM_NUMBERS},
    }
