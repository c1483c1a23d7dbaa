"""Check that a built site needs no network: no page loads a script, a style or an image from elsewhere.

python tools/check_site.py docs/_build/html
"""

import sys
from html.parser import HTMLParser
from pathlib import Path

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
# Other kinds of links name a page, and load nothing.
LOADED_LINKS = {"stylesheet", "preload", "icon", "shortcut icon", "modulepreload"}


class Loads(HTMLParser):
    """What a page loads, and whether it has equations."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.equations = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.equations |= "math" in (found.get("class") or "").split()
        if tag == "link" and found.get("rel") not in LOADED_LINKS:
            return
        if tag in LOADED and found.get(LOADED[tag]):
            self.addresses.append(str(found[LOADED[tag]]))


def faults(page: Path) -> list[str]:
    """What is wrong with one page, in words."""
    loads = Loads()
    loads.feed(page.read_text(encoding="utf-8"))
    found = []
    for address in loads.addresses:
        if address.startswith(("http://", "https://", "//")):
            found.append(f"loads {address} from the network")
        elif not address.startswith("data:") and not (page.parent / address.split("?")[0].split("#")[0]).exists():
            found.append(f"loads {address}, which is not there")
    if loads.equations and not any("tex-svg.js" in address for address in loads.addresses):
        found.append("has equations and does not load what draws them")
    return found


def main(site: str) -> None:
    # Templates of the theme are in `_static`.
    pages = [page for page in sorted(Path(site).rglob("*.html")) if "_static" not in page.relative_to(site).parts]
    if not pages:
        sys.exit(f"{site} holds no pages")
    wrong = [f"{page.relative_to(site)} {fault}" for page in pages for fault in faults(page)]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(pages)} pages load nothing from the network")


if __name__ == "__main__":
    main(*sys.argv[1:])
