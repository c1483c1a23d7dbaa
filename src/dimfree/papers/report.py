"""A page with every published figure and claim; it grows part by part, and can be interrupted and taken up again."""

import contextlib
import dataclasses
import datetime
import gc
import importlib.metadata
import inspect
import json
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax

from ..identity import identity
from .claims import VERDICTS, Claim
from .report_page import STATEMENTS, page
from .shelf import Paper, Size, find, shelf

_SCHEMA = "dimfree.report.part/1"
_DOTS_PER_INCH = 160


@dataclasses.dataclass(frozen=True)
class Part:
    """One figure of a publication, or its numbered statements (`name` is then `statements`)."""

    paper: str
    name: str
    title: str

    @property
    def stem(self) -> str:
        """What its files are called."""
        return f"{self.paper}_{self.name}"


@dataclasses.dataclass
class ReportResult:
    """How the writing of a report went.

    - `page`: the file to open.
    - `made`, `kept`, `failed`: parts that were computed now, that were there already, and that raised.
    - `verdicts`: of all claims on the page, how many agree, are misprints, differ.
    """

    page: Path
    made: list[str] = dataclasses.field(default_factory=list)
    kept: list[str] = dataclasses.field(default_factory=list)
    failed: list[str] = dataclasses.field(default_factory=list)
    verdicts: dict[str, int] = dataclasses.field(default_factory=dict)


def parts(papers: Iterable[Paper], figure: str | None = None) -> list[Part]:
    """The parts of publications, in their order; of a single one, perhaps one figure only."""
    found = []
    for paper in papers:
        found += [Part(paper.name, name, title) for name, title in paper.figures.items()]
        found.append(Part(paper.name, STATEMENTS, "Numbered statements"))
    return [part for part in found if figure in (None, part.name)]


def write_report(
    directory: str | Path,
    wanted: Sequence[Part],
    *,
    size: Size = "quick",
    tell: Callable[[int, Part, str], None] = lambda number, part, words: None,
) -> ReportResult:
    """Make the parts that are not in the directory yet, and write the page after each.

    A part is made again if it failed, or if another size or version made it. One that fails is reported on the page,
    and the others go on.

    **Arguments:**

    - `directory`: gets `index.html`, and all that the page shows; it is made if it is not there.
    - `wanted`: from `parts`.
    - `size`: as for [`reproduce`].
    - `tell`: told the number of each part, the part, and what became of it.
    """
    home = Path(directory)
    for name in ("figures", "data", "records"):
        (home / name).mkdir(parents=True, exist_ok=True)
    result = ReportResult(home / "index.html")
    result.verdicts = _write_page(home, wanted, size)
    for number, part in enumerate(wanted, 1):
        record = _read(home, part)
        if record is not None and _is_current(home, record, part, size):
            result.kept.append(part.stem)
            tell(number, part, "is there")
            continue
        tell(number, part, "begins")
        record = _make(home, part, size)
        _write(home / "records" / f"{part.stem}.json", json.dumps(record, indent=1))
        (result.made if record["error"] is None else result.failed).append(part.stem)
        outcome = "took" if record["error"] is None else "FAILED after"
        tell(number, part, f"{outcome} {record['seconds']:.1f} s")
        result.verdicts = _write_page(home, wanted, size)
        # What it has compiled serves no other figure, and a process that keeps all of it runs out of memory maps.
        jax.clear_caches()
        gc.collect()
    return result


def _make(home: Path, part: Part, size: Size) -> dict[str, Any]:
    """Compute a part, and say all that the page needs of it."""
    began = time.monotonic()
    paper = find(part.paper)
    record: dict[str, Any] = {
        "schema": _SCHEMA,
        **dataclasses.asdict(part),
        "size": size,
        "identity": "",
        "text": "",
        "dimfree": importlib.metadata.version("dimfree"),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": str(jax.devices()[0]),
        "finished": "",
        "seconds": 0.0,
        "picture": None,
        "inches": None,
        "data": None,
        "claims": [],
        "error": None,
    }
    try:
        record["identity"] = _identity(part, size)
        if part.name == STATEMENTS:
            claims = paper.statements()
        else:
            make = paper.figure(part.name)
            record["text"] = inspect.getdoc(make) or ""
            made = make(size)
            claims = made.claims
            picture, data = f"figures/{part.stem}.png", f"data/{part.stem}.nc"
            made.data.to_netcdf(home / data, engine="scipy")
            made.picture.savefig(home / picture, dpi=_DOTS_PER_INCH)
            record |= {"picture": picture, "inches": float(made.picture.get_figwidth()), "data": data}
        record["claims"] = [_in_short(claim) for claim in claims]
    except Exception:  # whatever is wrong with one figure is no reason to lose the others
        record["error"] = traceback.format_exc()
    record["seconds"] = time.monotonic() - began
    record["finished"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return record


def _in_short(claim: Claim) -> dict[str, str]:
    printed, ours = claim.farthest
    return {
        "where": claim.where,
        "statement": claim.statement,
        "verdict": claim.verdict,
        "printed": f"{printed:.5g}",
        "ours": f"{ours:.5g}",
        "difference": f"{claim.error(claim.printed):.2g} / {claim.tolerance:.2g}",
        "correction": claim.correction or "",
        "remark": claim.remark,
    }


def _is_current(home: Path, record: dict[str, Any], part: Part, size: Size) -> bool:
    """Whether a part need not be made again."""
    if record["error"] is not None or record.get("identity") != _identity(part, size):
        return False
    return part.name == STATEMENTS or (record["picture"] is not None and (home / record["picture"]).is_file())


def _identity(part: Part, size: Size) -> str:
    """The name of all that a part depends on; statements have one size only."""
    function = find(part.paper).function(part.name)
    return identity(part.stem, function) if part.name == STATEMENTS else identity(part.stem, function, size)


def _read(home: Path, part: Part) -> dict[str, Any] | None:
    """What is known of a part; None if there is nothing, or nothing that this version understands."""
    with contextlib.suppress(OSError, json.JSONDecodeError):
        record = json.loads((home / "records" / f"{part.stem}.json").read_text(encoding="utf-8"))
        return record if record.get("schema") == _SCHEMA else None
    return None


def _write_page(home: Path, wanted: Sequence[Part], size: Size) -> dict[str, int]:
    """The page of all that is in the directory, and of what is still to come; how many claims have which verdict."""
    papers, _ = shelf()
    everything = parts(papers.values())
    records = {part: _read(home, part) for part in everything}
    shown = [(part, records[part]) for part in everything if part in wanted or records[part] is not None]
    _write(home / "index.html", page(shown, papers, size))
    verdicts = [claim["verdict"] for _, record in shown if record is not None for claim in record["claims"]]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS}


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
