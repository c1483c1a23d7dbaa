"""Run the Python blocks of a Markdown file as they stand, in order, as one session; then its tables of single lines.

    python tools/run_readme.py README.md

A table of single lines is one whose last column is headed `one line`. The code runs in an empty directory, so that what
it writes is left out of the checkout.
"""

import os
import re
import sys
import tempfile
import time
from pathlib import Path

BLOCK = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[int, str]]:
    """The Python blocks of `text`, each with the line of the file on which its code begins."""
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in BLOCK.finditer(text)]


ROW = re.compile(r"^\|.*\| `([^`]+)` \|$", re.MULTILINE)
TABLE = re.compile(r"^\|.*\| one line \|\n\| --- .*\n((?:\|.*\n)+)", re.MULTILINE)


def single_lines(text: str) -> list[tuple[int, str]]:
    """The code in the last column of tables of single lines, each with the line of the file."""
    return [
        (text.count("\n", 0, table.start(1) + row.start()) + 1, row.group(1))
        for table in TABLE.finditer(text)
        for row in ROW.finditer(table.group(1))
    ]


def main(path: str) -> None:
    source = Path(path).resolve()
    text = source.read_text(encoding="utf-8")
    found = blocks(text)
    if not found:
        sys.exit(f"{path} has no block marked ```python")
    namespace: dict[str, object] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for line, code in found + single_lines(text):
            began = time.perf_counter()
            # Blank lines in front make a traceback name the line of the file.
            exec(compile("\n" * (line - 1) + code, str(source), "exec"), namespace)
            print(f"{source.name}, line {line}: ran in {time.perf_counter() - began:.1f} s")
        os.chdir(source.parent)


if __name__ == "__main__":
    main(*sys.argv[1:])
