"""The public face of studies."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
import yaml

from ..errors import InvalidInput, flag
from ..yaml_files import read
from .description import Description, Function, checked, in_words

if TYPE_CHECKING:
    from .engine import Report
    from .plan import Plan


class Study(Description):
    """A computation at every cell of a grid: the file `study.yaml` as an object.

    **Arguments:**

    - `problem`, `algorithm`: a dict each, with the `name` of a problem or algorithm of the library and its arguments.
    - `axes`: a dict from what varies to its values. What varies is `problem.<argument>`, `algorithm.<argument>`, or a
      setting of the computation, such as `d`. Values are a list, or a grid: a dict with `from`, `to`, `points` and
      `scale` (`linear` or `log`). The study is the product of its axes.
    - `compute`: a dict with a `name` and settings: `exit_time` (d, alpha, threshold), `simulate` (d, alpha), `solve`
      (limit, alpha, d or overlap, tolerance), `fixed_points` (starts), `dmft` (time, overlap, error, paths), `analysis`
      (of, quantities, settings) or `function` (function, quantities, settings, vectorised): your own, by its import
      path, called as `function(problem, algorithm, key=key, **settings)`.
    - `runs`, `seed`: runs, or random starts, of each cell; its random numbers depend on the seed and its number only.
    - `target_error`, `most_runs`: make further runs of a cell, as many each time, until the standard error of its first
      quantity is below the target.
    - `cells_per_task`: cells that one worker computes together; for a task that takes seconds.
    - `timeout`: seconds after which a cell is given up (where cells are computed together, all of the task). It may
      be changed later. Without it a task may take twenty times as long as others of its kind.
    - `refine`: a dict with `quantity` and `resolution`: instead of the whole grid compute cells where this quantity
      changes, until the change is located to this fraction of each axis.
    - `title`: for pictures.

    ??? example
        >>> import dimfree
        >>> study = dimfree.Study(
        ...     problem={"name": "PhaseRetrieval"},
        ...     algorithm={"name": "OnlineSGD", "sphere": True},
        ...     axes={"algorithm.learning_rate": {"from": 0.02, "to": 0.2, "points": 10}, "problem.noise": [0.0, 1.0]},
        ...     compute={"name": "solve", "alpha": 50.0, "overlap": 0.1},
        ... )
        >>> study.number_of_cells
        20
    """

    def __init__(self, **fields: Any):
        try:
            super().__init__(**fields)
        except pydantic.ValidationError as error:
            raise InvalidInput(in_words(error)) from error

    @classmethod
    def load(cls, path: str | Path) -> "Study":
        """A study from its file; nothing in it is run."""
        return cls(**checked(read(path, what="a study")).model_dump(by_alias=True))

    def save(self, path: str | Path) -> None:
        """Write the file that says the same."""
        Path(path).write_text(yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True))

    def plan(self, *, allow_code: bool = False) -> "Plan":
        """What it will cost, from timing a few cells."""
        from .plan import plan

        self._permit(allow_code)
        return plan(self)

    def run(
        self,
        store: str | Path,
        *,
        cluster: str = "local",
        workers: int | None = None,
        memory: str | None = None,
        address: str | None = None,
        queue: str | None = None,
        account: str | None = None,
        walltime: str | None = None,
        interface: str | None = None,
        allow_code: bool = False,
        accept_changes: bool = False,
        repair: bool = False,
        progress: bool = True,
    ) -> "Report":
        """Compute every cell that is not in the store yet.

        It can be interrupted at any time, by anything, and called again. Results do not depend on that, nor on the
        number of workers. A script that calls it must do so under `if __name__ == "__main__":`, because workers are
        started afresh.

        **Arguments:**

        - `store`: where to keep results: a local path or an fsspec URL. It must be seen by all workers.
        - `cluster`: `local`, `slurm`, `address` (then give `address`), or `inline`, which is this process.
        - `workers`: processes, or SLURM jobs, of one core each.
        - `memory`: of a worker, such as `"4GB"`.
        - `queue`, `account`, `walltime`, `interface`: for SLURM.
        - `allow_code`: whether the study's own function may be imported and run.
        - `accept_changes`: whether to go on in a store that was begun with other versions, another precision, another
          generator of random numbers or other code; the store then says so.
        - `repair`: whether to compute tasks again whose results in the store are damaged.
        - `progress`: whether to show how far it is.

        **Returns** a report of how it went. Before it says that the study is complete, the digest of every chunk is
        compared with what was written.
        """
        from .cells import Layout
        from .engine import run
        from .workers import Cluster

        accept_changes, repair = flag(accept_changes, "accept_changes"), flag(repair, "repair")
        progress = flag(progress, "progress")
        self._permit(allow_code)
        Layout(self)  # refuses what cannot be, before anything is written
        where = Cluster(cluster, workers, memory, address, queue, account, walltime, interface)  # pyright: ignore[reportArgumentType]
        return run(self, str(store), where, accept_changes=accept_changes, repair=repair, progress=progress)

    def _permit(self, allow_code: bool) -> None:
        if isinstance(self.compute, Function) and not flag(allow_code, "allow_code"):
            raise InvalidInput(
                f"This study runs code of its own, {self.compute.function}. If you trust it, allow it: --allow-code on "
                "the command line, allow_code=True in Python."
            )
