"""Offers every page that runs code as a Jupyter notebook.

The notebook is written beside the page, without outputs, and a line under the page's title links to it. Links between
pages become plain text in it, because the notebook leaves the site.
"""

import re
from pathlib import Path

import nbformat
from myst_nb.core.read import read_myst_markdown_notebook
from sphinx.application import Sphinx

IS_NOTEBOOK = re.compile(r"\A---\n(?:.*\n)*?file_format: mystnb\n")
TITLE = re.compile(r"^# .*\n", re.MULTILINE)
LINK_INSIDE = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)[^)]*\)")


def notebook(text: str) -> nbformat.NotebookNode:
    """The page as a notebook that stands by itself."""
    found = read_myst_markdown_notebook(text)
    for number, cell in enumerate(found.cells):
        cell.id = f"cell-{number}"
        if cell.cell_type == "markdown":
            cell.source = LINK_INSIDE.sub(r"\1", cell.source)
    found.metadata.pop("file_format", None)
    nbformat.validate(found)
    return found


def link(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the link under the title of a page that runs code."""
    if app.builder.format == "html" and IS_NOTEBOOK.match(source[0]):
        name = docname.rsplit("/", 1)[-1] + ".ipynb"
        line = f'\n<p class="notebook"><a href="{name}" download>Download this page as a notebook</a></p>\n'
        source[0] = TITLE.sub(lambda title: title[0] + line, source[0], count=1)


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the notebooks of all pages that run code."""
    if exception is not None or app.builder.format != "html":
        return
    for docname in app.env.found_docs:
        text = Path(app.env.doc2path(docname)).read_text(encoding="utf-8")
        if IS_NOTEBOOK.match(text):
            nbformat.write(notebook(text), Path(app.outdir) / f"{docname}.ipynb")


def setup(app: Sphinx) -> dict:
    app.connect("source-read", link)
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
