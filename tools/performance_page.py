"""Write docs/performance.md: what `python -m benchmarks` measures, with date, machine and load.

python tools/performance_page.py                       # all of it; ten minutes, on a quiet machine
python tools/performance_page.py importing first_calls # some rows, again
python tools/performance_page.py --page                # the page alone, from what is there

What is measured is kept in docs/data/performance.json.
"""

import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from scale_table import machine

ROOT = Path(__file__).resolve().parent.parent
PAGE, RECORD = ROOT / "docs" / "performance.md", ROOT / "docs" / "data" / "performance.json"
HEAD = """# Performance

The table is what `python -m benchmarks` measures. A ratio is the time of the library over that of the alternative, on
warm code, both timed in turn in one run: lower is better, 1 is equal. It is the median over the turns, with its
quartiles; `of the shortest` is the ratio of the shortest times, which other work on the machine disturbs least. Where
the load exceeds the number of cores, others were computing too: times are longer by about that factor, and what needs
all cores at once suffers most. First calls, which compile, are apart.

```bash
python -m benchmarks            # all, about ten minutes on two quiet cores; or nox -s bench
python -m benchmarks --quick    # what CI runs
asv machine --yes && asv run --python=same   # the same, for the history of the repository
```

CI fails where a ratio of the quick ones is 1.5 times the one in `benchmarks/recorded.json`, twice confirmed.
`tools/performance_page.py` writes this page. What large studies cost is on [](scale.md).

What to remember:

- The first call of anything compiles it. Compilation takes seconds, and most of the time of a short script;
  `DIMFREE_KEEP_COMPILED=1` keeps it between processes ([](install.md)). Numbers (rates, noise, d) do not cause
  compilation, sizes do.
- A step of exact simulation costs the same at every d. On vectors it costs in proportion to d.
- Many cells of a diagram in one `vmap` cost microseconds each; in a loop, milliseconds.
- The averages of an ODE are cheapest in closed form: `limit.expectation` says whether there is one.

"""
NOTES = {
    "reused": """With a dataset for each run the cores share the datasets, because XLA computes the product of a small
block with one vector on one core. Each block of inputs is read from memory once and used twice while it is in the
cache. What that costs depends on the machine: two cores that read 24 to 26 GB/s together take 17 to 18 GB/s of inputs,
0.7 of it (a ratio of 1.43) or a little more; on others, where each reads 17 to 22 GB/s, the second use costs as much as
the first, and half of the bandwidth is reached. A kernel that makes both products while a row is in registers would do
better; XLA does not write one for CPUs.

With a dataset for many runs a step is two matrix products with one thin side, 64 runs here. They reach the speed of a
large square product on machines of 65 Gflop/s, and 0.55 to 0.65 of it on those of 200; to the same two products in a
loop of their own, a step is in the ratio of `shared_data_against_bare_products`.

""",
}


# Why a ratio is larger than wanted, where it is.
REASONS = {
    "ode_against_diffrax": "each call spends 4 to 8 ms in Python, whatever its length, to check its arguments and to "
    "estimate the accuracy of averages.",
    "sde_against_scan": "here both spend their time on the same covariance; with one student `solve` is five times "
    "faster than such a scan.",
    "wide_network_against_diffrax": "each call spends some 60 ms, whatever its length, to estimate the accuracy of "
    "averages with further rules. Over ten times the time the ratio is 1.10.",
    "cost_of_width": "we think that arrays over 1,024 neurons and all nodes do not fit in the cache of a core.",
    "one_run_against_chain": "a single run fills no vector registers, and a step is more kernels of XLA than by hand.",
    "exact_against_chain": "a step is eight kernels of XLA, each of which takes time to start; by hand it is three.",
    "many_runs_against_chain": "the same, with 128 runs in each kernel.",
    "exact_against_its_numbers": "the same.",
    "devices_against_one": "the machine causes this: two independent processes, each on its own core, take 1.08 to "
    "1.29 times as long as one alone.",
    "shared_data_against_products": "see above.",
    "shared_data_against_products_float64": "see above.",
    "readme_against_bare": "most of the time is compilation, and programs for any problem are larger than for one.",
    "second_process_against_imports": "programs are kept, but each is traced (2 s together), lowered (.8 s) and read "
    "(1.2 s) once more before it runs; the picture takes 1.6 s.",
}


def measured(names: list[str]) -> dict:
    """Rows, each with when and under which load it was measured."""
    known = machine()
    with tempfile.TemporaryDirectory() as directory:
        table = Path(directory) / "table.json"
        command = [sys.executable, "-m", "benchmarks", "--json", str(table)]
        done = subprocess.run(command + (["--only", *names] if names else []), cwd=ROOT, check=False)
        if done.returncode:
            print("It ended early; what was measured until then is kept.", file=sys.stderr)
        return {name: row | known for name, row in json.loads(table.read_text()).items()}


def subjects() -> dict[str, tuple[str, dict[str, str]]]:
    """Of each file of benchmarks its title and, by name, what its benchmarks are."""
    found = {}
    for name in ("solving", "simulating", "coordinates", "reused", "populations", "protocols", "studying", "starting"):
        tree = ast.parse((ROOT / "benchmarks" / f"{name}.py").read_text())
        title = (ast.get_docstring(tree) or name).splitlines()[0].rstrip(".")
        functions = {node.name: ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
        found[name] = title, {name: words.splitlines()[0] for name, words in functions.items() if words}
    return found


def table(rows: dict[str, dict], meanings: dict[str, str]) -> str:
    lines = ["| benchmark | ratio [quartiles] | of the shortest | wanted | measured | first call |", "|" + " --- |" * 6]
    for name, row in rows.items():
        goal = "" if row["goal"] is None else f"<= {row['goal']:g}"
        times = [f"{of}: {duration(seconds)}" for of, seconds in row["seconds"].items()]
        times += [f"{of}: {value:.4g}" for of, value in row["more"].items()]
        first = [f"{of}: +{duration(seconds)}" for of, seconds in row["first"].items() if seconds > 0.1]
        cells = (
            f"`{name}`<br>{meanings[name]}",
            f"**{row['ratio']:.3g}** [{row['low']:.3g}, {row['high']:.3g}]",
            f"{row['least']:.3g}",
            goal,
            "<br>".join(times),
            "<br>".join(first),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def missed(rows: dict[str, dict]) -> str:
    """What is larger than wanted, and why."""
    over = [name for name, row in rows.items() if row["goal"] is not None and row["ratio"] > row["goal"]]
    lines = [f"- `{name}`: {REASONS.get(name, 'not understood yet.')}\n" for name in over]
    return f"Larger than wanted:\n\n{''.join(lines)}\n" if lines else ""


def duration(seconds: float) -> str:
    """With three digits, in s, ms or us."""
    scale, unit = next(((scale, unit) for scale, unit in ((1, "s"), (1e-3, "ms")) if seconds >= scale), (1e-6, "us"))
    return f"{seconds / scale:.3g} {unit}"


def page(known: dict[str, dict]) -> str:
    text = HEAD
    for name, (title, meanings) in subjects().items():
        rows = {each: known[each] for each in meanings if each in known}
        if rows:
            text += f"## {title}\n\n{NOTES.get(name, '')}{table(rows, meanings)}\n{missed(rows)}"
    row = next(iter(known.values()))
    loads, dates = ([each[what] for each in known.values()] for what in ("load", "date"))
    when = min(dates) if min(dates) == max(dates) else f"{min(dates)} to {max(dates)}"
    busy = f"{min(loads)}" if min(loads) == max(loads) else f"{min(loads)} to {max(loads)}"
    where = f"*{when}, {row['processor']}, {row['cores']} cores, load {busy} before it began, Python {row['python']}.*"
    return text + where + "\n"


def main(*names: str) -> None:
    known = json.loads(RECORD.read_text()) if RECORD.exists() and names else {}  # all of them: nothing old stays
    if names != ("--page",):
        known |= measured(list(names))
        RECORD.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(known))


if __name__ == "__main__":
    main(*sys.argv[1:])
