"""The best protocol: which rates and schedules make the risk smallest."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

import dimfree

from .dynamics import Dimension, Overlap, given_start
from .output import (
    AsJson,
    Output,
    Plot,
    Seed,
    check_targets,
    invalid,
    print_json,
    print_table,
    random_key,
    save_data,
    save_picture,
    working,
)
from .problem_options import states

if TYPE_CHECKING:
    from ..algorithms import OnlineAlgorithm
    from ..problems import Problem

_SHOWN = 9  # knots of a schedule in a table


@states
def best_protocol(
    problem: "Problem",
    sgd: "OnlineAlgorithm",
    over: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=LOW:HIGH[:KNOTS]",
            help="What to search: a number between bounds, or a schedule with KNOTS knots. The name is an option "
            "of the algorithm, such as learning-rate, or problem.noise; may be given several times.",
        ),
    ],
    alpha: Annotated[float, typer.Option(help="Where to end: samples per dimension.")] = 20.0,
    dimension: Dimension = 1_000,
    overlap: Overlap = None,
    until: Annotated[
        float | None,
        typer.Option(metavar="RISK", help="Reach this risk as early as possible [default: smallest risk at the end]."),
    ] = None,
    searches: Annotated[int, typer.Option(help="How many searches, each from another beginning.")] = 3,
    simulate: Annotated[
        int, typer.Option(metavar="RUNS", help="Also simulate the gain over the best constants, with pairs of runs.")
    ] = 0,
    seed: Seed = 0,
    plot: Plot = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The rates and schedules that make the final risk smallest.

    The best constants are searched first, then schedules, by gradients through the ODE. The risk is averaged over
    random starts in the given dimension, unless --overlap is given.

    Exit codes: 0 done, 2 bad input, 130 interrupted.

    Example: dimfree best-protocol --width 2 --teacher-width 2 --over learning-rate=0:8:16 --alpha 60 --plot best.png
    """
    check_targets(plot, output)
    import jax

    search_key, run_key = jax.random.split(random_key(seed))
    from ..errors import positive_integer

    simulate = positive_integer(simulate, "--simulate", minimum=0)
    wanted = dict(_control(words) for words in over)
    start = None if overlap is None else given_start(problem, dimension, overlap, search_key)
    with working("Searching ..."):
        # With a start, d would make theory the exact mean: the command is for the limit.
        found = dimfree.best_protocol(
            problem, sgd, alpha, wanted, start=start, d=None if start is not None else dimension, until=until,
            searches=searches, key=search_key,
        )  # fmt: skip
    if simulate:
        with working(f"Simulating {simulate} pairs of runs ..."):
            found = found.verify(dimension, simulate, key=run_key)
    save_picture(plot, lambda: dimfree.plot.protocol(found))
    if output is not None:
        groups: dict[str | None, Any] = {"protocol": found.to_xarray(), "best": found.trajectory.to_xarray()}
        if found.constant is not None:
            groups["constants"] = found.constant.trajectory.to_xarray()
        save_data(output, groups)
    compared = found.constant
    if as_json:
        checked = found.verification
        print_json(
            "best-protocol",
            problem=repr(problem),
            algorithm=repr(sgd),
            alpha=alpha,
            dimension=dimension,
            seed=seed,
            objective=found.objective,
            objective_error=found.objective_error,
            residual=found.residual,
            optimal=found.optimal,
            solves=found.solves,
            controls={name: {"alpha": found.times[name], "value": value} for name, value in found.values.items()},
            constants=None if compared is None else {"objective": compared.objective, "controls": compared.values},
            simulation=None
            if checked is None
            else {"gain": checked.gain, "gain_error": checked.gain_error, "predicted_gain": checked.predicted_gain},
        )
        return
    typer.echo(repr(found))
    for name, times in found.times.items():
        if times is not None and found.values[name].ndim == 1:
            _print_schedule(name, times, found.values[name])


def _print_schedule(name: str, times: Any, values: Any) -> None:
    import numpy as np

    rows = np.unique(np.linspace(0, len(times) - 1, _SHOWN).round().astype(int))
    print_table(name, {"alpha": times[rows].tolist(), "value": values[rows].tolist()})


def _control(words: str) -> tuple[str, tuple]:
    """What `NAME=LOW:HIGH[:KNOTS]` says, as `dimfree.best_protocol` takes it."""
    name, equals, bounds = words.partition("=")
    home, dot, of = name.strip().replace("-", "_").rpartition(".")
    parts = bounds.split(":")
    try:
        if not equals or not of or len(parts) not in (2, 3):
            raise ValueError
        low, high = (float(part) for part in parts[:2])
        knots = tuple(int(part) for part in parts[2:])
    except ValueError:
        raise invalid(
            f"--over {words} was given; give NAME=LOW:HIGH for a number, such as learning-rate=0.01:2, or "
            "NAME=LOW:HIGH:KNOTS for a schedule, such as learning-rate=0:2:16."
        ) from None
    return (f"{home}.{of}" if dot else f"algorithm.{of}"), (low, high, *knots)
