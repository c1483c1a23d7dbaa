"""Sphinx configuration. Build with `sphinx-build -W --keep-going -b html docs docs/_build/html`."""

import importlib
import importlib.metadata
import os
import sys
import tempfile
import uuid
from pathlib import Path

import nbclient
import sphinx.builders

sys.path[:0] = [str(Path(__file__).parent / "_ext"), str(Path(__file__).parent.parent / "tools")]

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")  # what importing dimfree says otherwise would be on every page
os.environ.pop("MPLBACKEND", None)  # a backend from outside would keep figures out of the pages
importlib.import_module("fast_compilation").compile_fast()

project = "dimfree"
author = "The dimfree developers"
copyright = "The dimfree developers"
release = version = importlib.metadata.version("dimfree")

extensions = ["myst_nb", "sphinx.ext.mathjax", "public_api", "notebooks"]
exclude_patterns = ["_build", "_templates", "**/.ipynb_checkpoints"]
templates_path = ["_templates"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Pages with code are run at each build, and an error in one fails it.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True

html_theme = "pydata_sphinx_theme"
html_title = "dimfree"
# Equations need no network: one file of MathJax, with its fonts, is part of the site.
mathjax_path = "tex-svg.js"
_mathjax = importlib.metadata.distribution("sphinx-mathjax-offline")
html_static_path = ["_static", str(_mathjax.locate_file("sphinx-mathjax-offline/static/mathjax/tex-svg.js"))]
html_css_files = ["wide.css"]
html_sidebars = {"**": ["sections.html"]}
html_theme_options = {
    "navbar_center": [],  # the sidebar has it all
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}
if "DOCS_SITE" in os.environ:
    # A site with several versions (tools/docs_versions.py) lets its reader choose among them.
    html_theme_options |= {
        "switcher": {
            "json_url": os.environ["DOCS_SITE"] + "/switcher.json",
            "version_match": os.environ["DOCS_VERSION"],
        },
        "check_switcher": False,
        "navbar_end": ["version-switcher", "theme-switcher"],
    }
html_show_sourcelink = False
toc_object_entries = False  # each public name has a heading of its own


_make_manager = nbclient.NotebookClient.create_kernel_manager


def _manager_with_sockets(client):
    """Kernels of pages that are run side by side looked for free ports, and two of them could find the same."""
    manager = _make_manager(client)
    manager.transport = "ipc"
    manager.connection_file = str(Path(tempfile.gettempdir()) / f"kernel-{uuid.uuid4()}.json")
    return manager


nbclient.NotebookClient.create_kernel_manager = _manager_with_sockets


# Each page is a task of its own. In chunks of many pages, as Sphinx makes them, one process executes a chunk while the
# other has nothing left to do.
sphinx.builders.make_chunks = lambda pages, processes: [[page] for page in pages]


def _longest_first(app, env, docnames):
    """Start with the tutorials, which take longest, so that both processes end at about the same time."""
    docnames.sort(key=lambda name: (not name.startswith("tutorials/"), name != "own_loss"))


def setup(app):
    app.connect("env-before-read-docs", _longest_first)
