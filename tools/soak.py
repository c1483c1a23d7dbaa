"""Run studies and the explorer for a long time, disturb them, and see that nothing changes and nothing grows.

    python tools/soak.py --minutes 30

In turns: a study on a local cluster of two workers, of which at random moments workers are killed, or the driver, which
is then started again; a study with a cell that fails, one that never ends and one that is not a number; studies, one of
which diverges, on a cluster that stays; moves of the explorer's sliders in a browser. The arrays of every study must
have the bytes of an undisturbed one. The memory of the workers that stay, and of the explorer's server, is measured
after each turn and kept in docs/data/soak.csv; it must not grow.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "studies"), str(ROOT / "tests" / "explorer")]

from browser import PICTURE, move, server, visitor  # noqa: E402
from drivers import (  # noqa: E402
    DIVERGING,
    DRAW,
    EXITS,
    TROUBLE,
    arrays,
    done,
    finish,
    free_address,
    kill,
    run,
    start,
    start_cluster,
    wait_for,
    workers,
    write_study,
)
from table import Table  # noqa: E402

from dimfree.studies.workers import environment as worker_environment  # noqa: E402

MIB = 2**20
GROWTH = 0.05  # of the memory after the warm-up, that the end may have more
STUDIES = {"draw": DRAW, "trouble": {**TROUBLE, "timeout": 4.0}, "exits": EXITS, "diverging": DIVERGING}
SLIDERS = (1, 2)  # learning rate and noise


class Disturbed:
    """Studies on clusters of their own, that something happens to."""

    def __init__(self, directory: Path, rng: random.Random):
        self.directory, self.rng, self.faults = directory, rng, 0
        self.files = {}
        for name, study in STUDIES.items():
            (directory / name).mkdir()
            self.files[name] = write_study(directory / name, study)
        self.undisturbed = {}
        for name in STUDIES:
            store = directory / f"{name}.undisturbed"
            # In this process nothing could end the cell that never ends.
            run(self.files[name], store, *(("--workers", "2") if name == "trouble" else ("--cluster", "inline")))
            self.undisturbed[name] = arrays(store)
        self.number = 0

    def fresh(self) -> Path:
        self.number += 1
        return self.directory / f"store{self.number}"

    def equal(self, name: str, store: Path) -> bool:
        return arrays(store) == self.undisturbed[name]

    def workers_killed(self, name: str) -> bool:
        """Workers end without a word, at random moments."""
        store = self.fresh()
        driver = start(self.files[name], store, "--workers", "2")
        for _ in range(self.rng.randint(1, 4)):
            before = done(store)
            wait_for(lambda before=before: done(store) > before or driver.poll() is not None, every=0.05)
            time.sleep(self.rng.uniform(0.0, 0.5))
            if alive := workers(driver):
                kill(self.rng.choice(alive))
                self.faults += 1
        finish(driver)
        return self.equal(name, store)

    def driver_ended(self, name: str) -> bool:
        """The driver is killed, or told to end, and started again."""
        store = self.fresh()
        driver = start(self.files[name], store, "--workers", "2")
        tasks = len(list((self.directory / f"{name}.undisturbed" / "done").iterdir()))
        least = self.rng.randint(1, max(1, tasks // 2))
        wait_for(lambda: done(store) >= least or driver.poll() is not None, every=0.05)
        orphans = workers(driver)
        driver.send_signal(self.rng.choice([signal.SIGKILL, signal.SIGTERM]))
        driver.communicate()
        self.faults += 1
        wait_for(lambda: not any(orphan.is_running() for orphan in orphans), 120, every=0.1)
        run(self.files[name], store, "--workers", "2")
        return self.equal(name, store)


class Steady:
    """A scheduler and two workers that stay for all studies."""

    def __init__(self):
        self.address = free_address()
        self.processes = start_cluster(self.address, 60, **worker_environment())

    def memory(self) -> float:
        """Of the larger worker, in MiB; a nanny is none."""
        found = [child for process in self.processes[1:] for child in psutil.Process(process.pid).children()]
        return max(child.memory_info().rss for child in found) / MIB

    def end(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


@contextlib.contextmanager
def steady() -> Iterator[Steady]:
    cluster = Steady()
    try:
        yield cluster
    finally:
        cluster.end()


@contextlib.contextmanager
def explorer() -> Iterator[tuple]:
    """The explorer's page, and the process of its server."""
    with server() as (address, process), visitor() as (page, wrong):
        page.goto(address)
        page.wait_for_selector(PICTURE)
        (served,) = psutil.Process(process.pid).children()
        yield page, wrong, served


def grows(samples: list[float]) -> tuple[float, float]:
    """Median of the second quarter, and that of the last: the first quarter compiles and fills caches."""
    quarter = max(1, len(samples) // 4)
    return float(np.median(samples[quarter : 2 * quarter] or samples)), float(np.median(samples[-quarter:]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="soak", help="of the table in docs/data")
    options = parser.parse_args()
    rng, wrong = random.Random(options.seed), []
    columns = ("minute", "studies", "faults", "moves", "worker_mib", "explorer_mib", "longest_move_s")
    table = Table(options.name, columns, ("minute",))
    table.path.unlink(missing_ok=True)
    measured: dict[str, list[float]] = {"worker": [], "explorer": []}
    studies = moves = 0
    with tempfile.TemporaryDirectory() as directory, steady() as cluster, explorer() as (page, complaints, served):
        disturbed = Disturbed(Path(directory), rng)
        began = time.monotonic()
        while (minute := (time.monotonic() - began) / 60) < options.minutes:
            fault, name = (
                rng.choice([disturbed.workers_killed, disturbed.driver_ended]),
                rng.choice(["draw", "trouble"]),
            )
            turns = {f"{name}, {fault.__name__}": lambda fault=fault, name=name: fault(name)}
            for calm in ("exits", "diverging"):
                store = disturbed.fresh()
                there = ("--cluster", "address", "--address", cluster.address)
                turns[calm] = lambda calm=calm, store=store, there=there: (
                    run(disturbed.files[calm], store, *there) and disturbed.equal(calm, store)
                )
            for words, turn in turns.items():
                studies += 1
                try:
                    if not turn():
                        wrong.append(f"minute {minute:.1f}: {words}: other bytes")
                except AssertionError as error:
                    wrong.append(f"minute {minute:.1f}: {words}: {error!s:.2000}")
            seconds = []
            for slider in SLIDERS:
                steps = rng.randint(2, 5)
                for key in ["ArrowRight"] * steps + ["ArrowLeft"] * steps:  # beyond its end a slider does not move
                    seconds.append(move(page, slider, key))
            moves += len(seconds)
            measured["worker"].append(cluster.memory())
            measured["explorer"].append(served.memory_info().rss / MIB)
            row = {"minute": round(minute, 1), "studies": studies, "faults": disturbed.faults, "moves": moves}
            row |= {"worker_mib": round(measured["worker"][-1]), "explorer_mib": round(measured["explorer"][-1])}
            table.add(row | {"longest_move_s": round(max(seconds), 2)})
            print(row, *wrong, flush=True)
    wrong += [f"the explorer's page: {words}" for words in complaints]
    for name, samples in measured.items():
        early, late = grows(samples)
        print(f"{name}: {early:.0f} MiB in the second quarter, {late:.0f} MiB in the last ({len(samples)} samples)")
        if len(samples) >= 8 and late > (1 + GROWTH) * early:
            wrong.append(f"the memory of the {name} grows, from {early:.0f} MiB to {late:.0f} MiB")
    print(f"{studies} studies, {disturbed.faults} faults, {moves} moves; {len(wrong)} wrong", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.exit(main())
