"""Write papers/docs/gallery.md: every published figure that the library reproduces, drawn, with its verdicts.

python papers/tools/gallery_page.py                        # every figure that is not there yet; an hour on a busy core
python papers/tools/gallery_page.py bocchi2026 mignacco2021/fig5      # these, again
python papers/tools/gallery_page.py --full mignacco2021/fig2          # these at full size, up to an hour each
python papers/tools/gallery_page.py --page                 # the page alone, from what is there

A picture that exists is not drawn again, so that the tool can be stopped at any time and taken up later. Verdicts are
kept in papers/docs/gallery.json, beside the pictures in papers/docs/gallery/.
"""

import io
import json
import sys
import time
from collections import Counter
from pathlib import Path

import matplotlib
from claims_page import PAPERS, plain
from PIL import Image

from dimfree import reproduce
from dimfree.papers import Size, find

matplotlib.use("Agg")

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, PICTURES, RECORD = DOCS / "gallery.md", DOCS / "gallery", DOCS / "gallery.json"
WIDTH = 900  # pixels, at most
WORDS = {"agrees": "agree", "misprint": "misprinted", "differs": "differ"}
HEAD = """# Gallery: published figures, drawn again

Every figure below is one function of `dimfree-papers`. It computes the data anew, draws them, and compares what the
publication says of the figure with what comes out. A claim *agrees* if it holds within a stated tolerance. It is a
*misprint* if it does not hold but its correction does, and it *differs* otherwise. Pictures are at quick size (fewer
runs, lower dimension) unless the command beside them says `--size full`. Full size is the publication's own, or the
largest that two cores compute in an hour. In Python, `dimfree.reproduce("bocchi2026", "fig6")` gives the data as an
xarray Dataset, the Matplotlib figure and the claims.
[](papers.md) has the numbered statements of the same publications. `papers/tools/gallery_page.py` writes this page.

"""


def record() -> dict[str, dict]:
    """What is known of each figure, by `paper/figure`."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def picture_of(name: str) -> Path:
    return PICTURES / f"{name.replace('/', '_')}.webp"


def draw(paper: str, figure: str, size: Size) -> dict:
    """Make one figure; its picture goes to its file, the rest is returned."""
    began = time.perf_counter()
    made = reproduce(paper, figure, size)
    seconds = time.perf_counter() - began
    drawn = io.BytesIO()
    made.picture.savefig(drawn, dpi=140, bbox_inches="tight", facecolor="white")
    with Image.open(drawn) as image:
        width = min(WIDTH, image.width)
        height = round(image.height * width / image.width)
        small = image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
    PICTURES.mkdir(parents=True, exist_ok=True)
    small.save(picture_of(f"{paper}/{figure}"), quality=85, method=6)
    claims = [
        {"where": claim.where, "statement": claim.statement, "verdict": claim.verdict, "remark": claim.remark}
        | ({"correction": claim.correction} if claim.correction else {})
        for claim in made.claims
    ]
    return {"size": size, "seconds": round(seconds, 1), "claims": claims}


def counted(claims: list[dict]) -> str:
    """How many claims have which verdict, in words."""
    counts = Counter(claim["verdict"] for claim in claims)
    return ", ".join(f"{counts[verdict]} {word}" for verdict, word in WORDS.items() if counts[verdict])


def section(paper: str, figure: str, title: str, known: dict) -> str:
    claims = known["claims"]
    verdicts = f"{len(claims)} claim{'s' * (len(claims) != 1)}: {counted(claims)}" if claims else "no claim"
    full = known.get("size") == "full"
    command = f"`dimfree reproduce {paper} {figure}{' --size full' * full}`"
    cost = f" ({max(1, round(known['seconds'] / 60))} minutes on two cores)" * full
    lines = [
        f"### {figure}: {title}",
        "",
        f"![{paper}, {figure}: {title}](gallery/{picture_of(f'{paper}/{figure}').name})",
        "",
        f"{verdicts}. {command}{cost}",
        "",
    ]
    for claim in claims:
        verdict = claim["verdict"] if claim["verdict"] == "agrees" else f"**{claim['verdict']}**"
        notes = " ".join(
            filter(None, (claim.get("correction") and f"Correct: {claim['correction']}", claim.get("remark")))
        )
        where = f"{verdict} ({plain(claim['where'])})"
        lines.append(f"- {where}: {plain(claim['statement'])}{' (' + plain(notes) + ')' if notes else ''}")
    return "\n".join(lines).rstrip() + "\n\n"


def write(known: dict[str, dict]) -> None:
    """The page, from what is known."""
    claims = [claim for each in known.values() for claim in each["claims"]]
    parts = [HEAD, f"{len(known)} figures with {len(claims)} claims about them: {counted(claims)}.\n\n"]
    for paper in map(find, PAPERS):
        figures = {figure: title for figure, title in paper.figures.items() if f"{paper.name}/{figure}" in known}
        if not figures:
            continue
        parts.append(f"## {paper.title}\n\n{paper.reference}\n\n")
        parts += [section(paper.name, each, title, known[f"{paper.name}/{each}"]) for each, title in figures.items()]
    PAGE.write_text("".join(parts).rstrip() + "\n")


def main(*names: str) -> None:
    known = record()
    for paper in map(find, PAPERS):
        for figure in paper.figures:
            name = f"{paper.name}/{figure}"
            asked = paper.name in names or name in names
            there = name in known and picture_of(name).exists()
            if "--page" in names or (names and not asked) or (there and not asked):
                continue
            known[name] = draw(paper.name, figure, "full" if "--full" in names else "quick")
            RECORD.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
            size = picture_of(name).stat().st_size / 1024
            print(f"{name}: {known[name]['seconds']:.0f} s, {size:.0f} kB", flush=True)
    write(known)


if __name__ == "__main__":
    main(*sys.argv[1:])
