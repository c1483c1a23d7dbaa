"""Write papers/docs/errata.md: printed equations against the derived ones, symbol by symbol, with each difference.

python papers/tools/errata_page.py       # a minute
"""

from pathlib import Path

import sympy

from dimfree.papers import find
from dimfree_papers.printed import WITH_EQUATIONS, PrintedEquation, printed_equations

PAGE = Path(__file__).resolve().parent.parent / "docs" / "errata.md"
HEAD = """# Errata, found by machine

Every equation below is polynomial in the order parameters. It is entered as its source prints it and compared, symbol
by symbol, with the one that [`dimfree.equations`](equations.md) derives from the step of SGD. An equation is
called a misprint only if it differs from the derived one and its correction makes the difference vanish identically.
[](papers.md) has the statements that are not of this kind, compared in numbers.
`papers/tools/errata_page.py` writes this page.

"""
_LONG = 420  # characters of LaTeX that are still read


def shown(equation: PrintedEquation) -> str:
    """The difference as a display, or what is to be said of a long one."""
    differences = equation.difference(equation.printed)
    factor = equation.factor
    if factor is not None:
        return f"$$\n\\text{{derived}} = {sympy.latex(factor)} \\times \\text{{printed}}\n$$"
    texts = sorted((equation.to_latex(each) for each in differences), key=len)
    kept = [text for text in texts if len(text) <= _LONG][:3] or texts[:1]
    lines = [f"\\text{{derived}} - \\text{{printed}} &= {text}" for text in kept]
    note = f"\n\nand {len(texts) - len(kept)} more of the kind." if len(texts) > len(kept) else ""
    return "$$\n\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}\n$$" + note


def section(equation: PrintedEquation) -> str:
    words = [f"**{equation.where}** ({equation.verdict}). {equation.statement}", shown(equation)]
    if equation.correction:
        words.append(f"Correct: {equation.correction}")
    if equation.remark:
        words.append(f"*{equation.remark}*")
    return "\n\n".join(words)


def main() -> None:
    parts = [HEAD]
    for name in WITH_EQUATIONS:
        equations = printed_equations(name)
        wrong = [each for each in equations if each.verdict != "agrees"]
        right = [each for each in equations if each.verdict == "agrees"]
        parts.append(
            f"## {find(name).title}\n\n`{name}`: {len(equations)} entries, {len(wrong)} with a difference.\n\n"
        )
        parts.extend(section(each) + "\n\n" for each in wrong)
        parts.append("Without a difference:\n\n")
        parts.extend(f"- {each.where}: {each.statement}{' ' + each.remark if each.remark else ''}\n" for each in right)
        parts.append("\n")
    PAGE.write_text("".join(parts).rstrip() + "\n")


if __name__ == "__main__":
    main()
