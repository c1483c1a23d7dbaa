"""Write papers/docs/papers.md: every numbered statement of the papers that is checked, with a verdict.

python papers/tools/claims_page.py       # a few minutes
"""

from pathlib import Path

import numpy as np

from dimfree import Claim
from dimfree.papers import find

PAPERS = ("arnaboldi2023", "benarous2022", "bocchi2026", "loureiro2023", "mignacco2021")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "papers.md"
HEAD = """# What the papers say

Each paper below has its figures as functions (`dimfree reproduce --list`), and its numbered statements are evaluated
and compared with the library, which computes the same quantity in another way. The verdict is computed: *agrees*
within the tolerance; *misprint* where the printed statement does not agree, but the corrected one beside it does;
*differs* otherwise. `papers/tools/claims_page.py` writes this page; `dimfree reproduce PAPER` prints the same table
with the numbers.

"""


def plain(text: str) -> str:
    """Text on one line, in which no star means emphasis; formulas are left alone."""
    parts = " ".join(text.split()).split("$")
    return "$".join(part if number % 2 else part.replace("*", "\\*") for number, part in enumerate(parts))


def cell(text: str) -> str:
    """Plain text for a table, where a bar would end the cell."""
    return plain(text).replace("|", "\\|")


def number(value) -> str:
    array = np.asarray(value, float)
    return f"{float(array):.4g}" if array.ndim == 0 else f"{array.size} numbers"


def row(claim: Claim) -> str:
    verdict = claim.verdict if claim.verdict == "agrees" else f"**{claim.verdict}**"
    notes = cell(" ".join(filter(None, (claim.correction and f"Correct: {claim.correction}", claim.remark))))
    numbers = f"{number(claim.printed)} / {number(claim.ours)}"
    columns = (cell(claim.where), cell(claim.statement), numbers, f"{claim.error(claim.printed):.1e}", verdict, notes)
    return f"| {' | '.join(columns)} |"


def main() -> None:
    parts = [HEAD]
    for name in PAPERS:
        paper = find(name)
        claims = paper.statements()
        counts = ", ".join(
            f"{sum(claim.verdict == verdict for claim in claims)} {word}"
            for verdict, word in (("agrees", "agree"), ("misprint", "misprints"), ("differs", "differ"))
        )
        figures = "".join(f"- `{figure}`: {title}\n" for figure, title in paper.figures.items())
        parts.append(f"## {paper.title}\n\n{paper.reference}\n\n")
        parts.append(f"`{name}`: {len(claims)} statements; {counts}. Figures:\n\n{figures}\n")
        parts.append("| where | statement | printed / ours | difference | verdict | notes |\n")
        parts.append("| --- | --- | --- | --- | --- | --- |\n")
        parts.append("\n".join(row(claim) for claim in claims) + "\n\n")
    PAGE.write_text("".join(parts).rstrip() + "\n")


if __name__ == "__main__":
    main()
