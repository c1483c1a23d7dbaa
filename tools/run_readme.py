"""Run the Python blocks of a Markdown file as they stand, in order, as one session.

    python tools/run_readme.py README.md

The blocks run in an empty directory, so that what they write is left out of the checkout.
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


def main(path: str) -> None:
    source = Path(path).resolve()
    found = blocks(source.read_text(encoding="utf-8"))
    if not found:
        sys.exit(f"{path} has no block marked ```python")
    namespace: dict[str, object] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for line, code in found:
            began = time.perf_counter()
            # Blank lines in front make a traceback name the line of the file.
            exec(compile("\n" * (line - 1) + code, str(source), "exec"), namespace)
            print(f"{source.name}, line {line}: ran in {time.perf_counter() - began:.1f} s")
        os.chdir(source.parent)


if __name__ == "__main__":
    main(*sys.argv[1:])
