"""Put a build of the documentation beside those of other versions, and list them for the switcher.

    python tools/docs_versions.py docs/_build/html site v0.2.0 https://example.org/dimfree

`site` gets a folder for the version (`dev`, or a tag such as `v0.2.0`), `switcher.json`, and an `index.html` that
leads to the newest release, or to `dev` before the first.
"""

import json
import re
import shutil
import sys
from pathlib import Path

TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


def versions(site: Path) -> list[str]:
    """The versions that the site holds: `dev` first, then the newest release."""
    releases = [path.name for path in site.iterdir() if TAG.fullmatch(path.name)]
    releases.sort(key=lambda name: tuple(map(int, name[1:].split("."))), reverse=True)
    return [*(["dev"] if (site / "dev").is_dir() else []), *releases]


def switcher(names: list[str], address: str) -> list[dict[str, str | bool]]:
    """What the switcher of the theme reads."""
    newest = next((name for name in names if name != "dev"), None)
    return [
        {"version": name, "name": f"{name} (stable)" if name == newest else name, "url": f"{address}/{name}/"}
        | ({"preferred": True} if name == newest else {})
        for name in names
    ]


def main(build: str, site: str, version: str, address: str) -> None:
    if version != "dev" and not TAG.fullmatch(version):
        sys.exit(f"version = {version!r} was given; it must be dev, or a tag such as v0.2.0.")
    place = Path(site)
    shutil.rmtree(place / version, ignore_errors=True)
    shutil.copytree(build, place / version)
    names = versions(place)
    (place / "switcher.json").write_text(json.dumps(switcher(names, address.rstrip("/")), indent=1) + "\n")
    first = next((name for name in names if name != "dev"), "dev")
    (place / "index.html").write_text(f'<!doctype html>\n<meta http-equiv="refresh" content="0; url={first}/">\n')
    (place / ".nojekyll").touch()
    print(", ".join(names))


if __name__ == "__main__":
    main(*sys.argv[1:])
