"""The page of a report, in HTML that needs nothing but the files beside it."""

import base64
import functools
import html
import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..printing import duration

if TYPE_CHECKING:
    from .report import Part
    from .shelf import Paper

STATEMENTS = "statements"  # the name of the part that is no figure
_VERDICTS = {
    "agrees": "agrees",
    "misprint": "misprint: what is printed does not hold, the correction does",
    "differs": "differs from what is printed",
}
_PIXELS_PER_INCH = 110  # on the page: panels of about 570 pixels
# Of a table of claims: width in percent, and whether it holds numbers. What is apart is relative, as the tolerance is.
_COLUMNS = (
    ("where", 13, ""),
    ("verdict", 9, ""),
    ("statement", 30, ""),
    ("printed", 9, "number"),
    ("ours", 9, "number"),
    ("apart / allowed", 12, "number"),
    ("notes", 18, ""),
)
_MATH = re.compile(r"\$+([^$]+)\$+")

_STYLE = """
:root { --ink: #1d2329; --soft: #5d6975; --line: #dfe3e8; --paper: #ffffff; --back: #f5f6f8; --link: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 2.2rem 1.4rem 5rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 3.2rem 0 .2rem; scroll-margin-top: 1rem; }
h3 { font-size: 1.05rem; margin: 0; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
p { margin: .5rem 0; } .soft { color: var(--soft); font-size: .9rem; }
code { font: .88em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.chips { display: flex; flex-wrap: wrap; gap: .5rem; margin: 1rem 0; padding: 0; list-style: none; }
.chips li { background: var(--paper); border: 1px solid var(--line); border-radius: 999px; padding: .25rem .8rem; }
.part { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 1.1rem 1.3rem;
  margin: 1rem 0; overflow: hidden; scroll-margin-top: 1rem; }
.part header { display: flex; justify-content: space-between; gap: 1rem; align-items: baseline; flex-wrap: wrap; }
.part img.figure { display: block; width: 100%; height: auto; margin: .9rem auto .4rem; }
.failed { border-left: 5px solid #c4321b; } .missing { border-style: dashed; background: none; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; margin-top: .6rem; }
th { text-align: left; color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--line);
  padding: .35rem .5rem; }
td { vertical-align: top; border-bottom: 1px solid var(--line); padding: .4rem .5rem; overflow-wrap: anywhere; }
.claims { table-layout: fixed; } tr:last-child td { border-bottom: 0; } .number { text-align: right;
  font-variant-numeric: tabular-nums; } .contents td { padding: .35rem .5rem; }
.verdict { display: inline-block; border-radius: 5px; padding: .05rem .5rem; font-size: .8rem; font-weight: 600;
  white-space: nowrap; }
.agrees { background: #e0f3ea; color: #0b6b4a; } .misprint { background: #fdf0d3; color: #855600; }
.differs { background: #fbe1dc; color: #a5260f; }
details { margin-top: .7rem; } summary { cursor: pointer; color: var(--link); }
pre { background: #fbf3f1; border-radius: 6px; padding: .8rem; overflow-x: auto; font-size: .8rem; }
img.math { height: auto; max-width: 100%; vertical-align: middle; }
@media print { body { background: none; } .part { break-inside: avoid; } }
"""


def page(parts: "Sequence[tuple[Part, dict[str, Any] | None]]", shelf: "Mapping[str, Paper]", size: str) -> str:
    """The whole page: a summary, a table of contents, then every part, those still to come included."""
    records = [record for _, record in parts if record is not None]
    done = [record for record in records if record["error"] is None]
    seconds = sum(record["seconds"] for record in records)
    chips = [
        f"{len(done)} of {len(parts)} parts done",
        *([f"{len(records) - len(done)} failed"] if len(done) < len(records) else []),
        *(_badge(verdict, f"{number} {verdict}") for verdict, number in _counts(records).items()),
        f"size: {_text(size)}",
        f"{duration(seconds)} of computing",
    ]
    papers = list(dict.fromkeys(part.paper for part, _ in parts))
    sections = [
        f'<h2 id="{_text(paper)}">{_text(shelf[paper].title)}</h2>\n'
        f'<p class="soft">{_reference(shelf[paper].reference)} <code>{_text(paper)}</code></p>\n'
        + "\n".join(_part(part, record) for part, record in parts if part.paper == paper)
        for paper in papers
    ]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Published figures and claims, reproduced by dimfree</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Published figures and claims, reproduced</h1>
<p>Every figure is drawn from computations made here, and every claim has a verdict that the numbers gave:
{_badge("agrees")} within the tolerance, {_badge("misprint")} where what is printed does not hold but the correction
beside it does, {_badge("differs")} otherwise.</p>
<ul class="chips">{"".join(f"<li>{chip}</li>" for chip in chips)}</ul>
<p class="soft">{_versions(records)}</p>
{_contents(papers, parts, shelf)}
{chr(10).join(sections)}
</main>
</body>
</html>
"""


def _part(part: "Part", record: dict[str, Any] | None) -> str:
    name = "" if part.name == STATEMENTS else f"{_text(part.name)}. "
    head = f"<h3>{name}{_math(part.title)}</h3>"
    if record is None:
        words = '<p class="soft">Still to come.</p>'
        return f'<article class="part missing" id="{_text(part.stem)}"><header>{head}</header>{words}</article>'
    took = f'<span class="soft">{duration(record["seconds"])}, {_text(record["finished"][:10])}</span>'
    body = []
    if record["error"] is not None:
        last = record["error"].strip().splitlines()[-1]
        body.append(
            f'<p><span class="verdict differs">failed</span> {_text(last)}</p>'
            f"<details><summary>What happened</summary><pre>{_text(record['error'])}</pre></details>"
        )
    if record["picture"] is not None:
        path = _text(record["picture"])
        wide = f"max-width: {_PIXELS_PER_INCH * record['inches']:.0f}px"
        image = f'<img class="figure" style="{wide}" loading="lazy" src="{path}" alt="{_text(part.title)}">'
        body.append(f'<a href="{path}">{image}</a>')
    if record["text"]:
        body += [f"<p>{_math(' '.join(paragraph.split()))}</p>" for paragraph in record["text"].split("\n\n")]
    if record["claims"]:
        counts = " ".join(_badge(verdict, f"{n} {verdict}") for verdict, n in _counts([record]).items() if n)
        table = _claims(record["claims"])
        if part.name == STATEMENTS:
            body.append(
                f"<p>{counts}</p><details><summary>{len(record['claims'])} statements</summary>{table}</details>"
            )
        else:
            body.append(f"<p>{counts}</p>{table}")
    if record["data"] is not None:
        command = f"dimfree reproduce {part.paper} {part.name} --size {record['size']}"
        body.append(
            f'<p class="soft"><a href="{_text(record["data"])}">Its data</a> (NetCDF); '
            f"again by itself: <code>{_text(command)}</code></p>"
        )
    failed = "" if record["error"] is None else " failed"
    return (
        f'<article class="part{failed}" id="{_text(part.stem)}"><header>{head}{took}</header>\n'
        + "\n".join(body)
        + "</article>"
    )


def _claims(claims: list[dict[str, str]]) -> str:
    rows = []
    for claim in claims:
        correction = f"<b>Correct:</b> {_math(claim['correction'])}" if claim["correction"] else ""
        notes = " ".join(filter(None, (correction, _math(claim["remark"]))))
        rows.append(
            f"<tr><td>{_text(claim['where'])}</td><td>{_badge(claim['verdict'])}</td>"
            f'<td>{_math(claim["statement"])}</td><td class="number">{_text(claim["printed"])}</td>'
            f'<td class="number">{_text(claim["ours"])}</td>'
            f'<td class="number">{_text(claim["difference"])}</td><td>{notes}</td></tr>'
        )
    head = "".join(f'<th style="width: {width}%" class="{kind}">{name}</th>' for name, width, kind in _COLUMNS)
    return f"<table class='claims'><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _contents(
    papers: list[str], parts: "Sequence[tuple[Part, dict[str, Any] | None]]", shelf: "Mapping[str, Paper]"
) -> str:
    rows = []
    for paper in papers:
        own = [(part, record) for part, record in parts if part.paper == paper]
        links = " ".join(f'<a href="#{_text(part.stem)}">{_text(part.name)}</a>' for part, _ in own)
        made = [record for _, record in own if record is not None]
        counts = " ".join(_badge(verdict, str(n)) for verdict, n in _counts(made).items() if n)
        seconds = duration(sum(record["seconds"] for record in made)) if made else ""
        rows.append(
            f'<tr><td><a href="#{_text(paper)}">{_text(shelf[paper].title)}</a><br>'
            f'<span class="soft">{links}</span></td>'
            f'<td>{counts}</td><td class="number">{seconds}</td></tr>'
        )
    return f'<div class="part"><table class="contents"><tbody>{"".join(rows)}</tbody></table></div>'


def _counts(records: Sequence[dict[str, Any]]) -> dict[str, int]:
    verdicts = [claim["verdict"] for record in records for claim in record["claims"]]
    return {verdict: verdicts.count(verdict) for verdict in _VERDICTS}


def _reference(reference: str) -> str:
    """Authors and place, with a link where one to the web is given."""
    words, _, link = reference.partition("<")
    link = link.removesuffix(">")
    if not link.startswith(("https://", "http://")):
        return _text(reference)
    return f'{_text(words)}<a href="{_text(link)}">{_text(link)}</a>'


def _versions(records: Sequence[dict[str, Any]]) -> str:
    """What made the page; several where it was made in several goes."""
    made = dict.fromkeys(
        f"dimfree {record['dimfree']}, JAX {record['jax']}, Python {record['python']}, on {record['device']}"
        for record in records
    )
    return _text("Made with " + "; ".join(made) + "." if made else "Nothing is made yet.")


def _badge(verdict: str, words: str | None = None) -> str:
    title = _text(_VERDICTS.get(verdict, verdict))
    return f'<span class="verdict {_text(verdict)}" title="{title}">{_text(words or verdict)}</span>'


def _text(text: str) -> str:
    return html.escape(str(text), quote=True)


def _math(text: str) -> str:
    """Text with its formulas as pictures, and as they were written where they cannot be drawn."""
    pieces = _MATH.split(text)
    return "".join(_formula(piece) if odd % 2 else _text(piece) for odd, piece in enumerate(pieces))


@functools.cache
def _formula(latex: str) -> str:
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import math_to_image

    drawn = io.BytesIO()
    try:
        math_to_image(f"${latex}$", drawn, prop=FontProperties(size=12), format="svg", dpi=96)
    except ValueError:
        return f"<code>{_text(latex)}</code>"
    source = base64.b64encode(drawn.getvalue()).decode()
    return f'<img class="math" alt="{_text(latex)}" src="data:image/svg+xml;base64,{source}">'
