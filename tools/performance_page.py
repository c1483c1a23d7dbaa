"""Write docs/performance.md: the benchmarks, as they print, with date, machine and load.

python tools/performance_page.py                    # all of them; some minutes, on a quiet machine
python tools/performance_page.py study_overhead     # one, again
python tools/performance_page.py --page             # the page alone, from what is there

What they print is kept in docs/data/performance.json.
"""

import ast
import json
import subprocess
import sys
import time
from pathlib import Path

from scale_table import machine

ROOT = Path(__file__).resolve().parent.parent
PAGE, RECORD = ROOT / "docs" / "performance.md", ROOT / "docs" / "data" / "performance.json"
HEAD = """# Performance

Figures below are what the benchmarks of the repository print, with the command, the date, the machine and how busy it
was. Where the load exceeds the number of cores, others were computing too, and times are longer by about that factor;
ratios, measured in one run and in turn, are affected less. Speed is kept by running them again: `nox -s bench`.
`tools/performance_page.py` writes this page. What large studies cost is on [](scale.md).

What to remember:

- The first call of anything compiles it. Compilation takes seconds, and most of the time of a short script;
  `JAX_COMPILATION_CACHE_DIR` keeps it between processes. Numbers (rates, noise, d) do not cause compilation, sizes do.
- A step of exact simulation costs the same at every d. On vectors it costs in proportion to d.
- Many cells of a diagram in one `vmap` cost microseconds each; in a loop, milliseconds.
- The averages of an ODE are cheapest in closed form: `limit.expectation` says whether there is one.

"""
WORDS = {
    "ratios": (
        "The library against what one would write by hand",
        "A ratio is that of the library to the alternative, or the other way round where a goal is a lower bound.",
    ),
    "finite_sample": (
        "Simulations on reused data against the machine",
        "How much of the machine's matrix products, and of its memory, `simulate_reused` uses.",
    ),
    "dmft_iteration": (
        "One causal pass of a mean-field theory against iterating its kernels",
        "Both have the same paths, and agree. The iteration is that of Mignacco, Urbani & Zdeborová (2021).",
    ),
    "study_overhead": (
        "The engine of studies against bare processes",
        "Tasks sleep, so that what is measured is the engine and the store.",
    ),
}


def run(name: str) -> dict:
    """What a benchmark prints."""
    before, began = machine(), time.perf_counter()
    command = [sys.executable, f"benchmarks/{name}.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stdout}\n{done.stderr}")
    return {"output": done.stdout.rstrip(), "seconds": round(time.perf_counter() - began)} | before


def explained(name: str, output: str) -> str:
    """What the rows of a benchmark are: the first lines of its functions that it prints by their name."""
    tree = ast.parse((ROOT / "benchmarks" / f"{name}.py").read_text())
    functions = {node.name: ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    rows = [
        f"- `{function}`: {words.splitlines()[0]}\n"
        for function, words in functions.items()
        if words and any(line.startswith(function) for line in output.splitlines())
    ]
    return "".join(rows) + "\n" if rows else ""


def section(name: str, known: dict) -> str:
    title, words = WORDS[name]
    where = (
        f"{known['date']}, {known['processor']}, {known['cores']} cores, load {known['load']} before it began, "
        f"Python {known['python']}, {known['seconds']} s."
    )
    return (
        f"## {title}\n\n{words}\n\n```bash\npython benchmarks/{name}.py\n```\n\n"
        f"```text\n{known['output']}\n```\n\n{explained(name, known['output'])}*{where}*\n\n"
    )


def main(*names: str) -> None:
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in WORDS if not names else [name for name in names if name in WORDS]:
        known[name] = run(name)
        RECORD.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        print(f"{name}: {known[name]['seconds']} s", flush=True)
    PAGE.write_text((HEAD + "".join(section(name, known[name]) for name in WORDS if name in known)).rstrip() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
