"""Files of plain data: YAML that runs no code."""

import re
from pathlib import Path
from typing import Any

import yaml

from .errors import InvalidInput

_LARGEST_FILE = 2**20
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")  # YAML takes 1e-3 for a word


def read(path: str | Path, *, what: str) -> Any:
    """The plain data of a file; no code in it is run.

    **Arguments:**

    - `what`: the file holds, such as `"a study"`, for errors.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise InvalidInput(f"{path} has {path.stat().st_size:,} bytes; the file of {what} is a page.")
        return yaml.load(path.read_text(), Loader=_PlainLoader)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is no YAML that {what} can be read from: {error}") from error


def with_numbers(value: Any) -> Any:
    """Words that are numbers as numbers."""
    if isinstance(value, list):
        return [with_numbers(item) for item in value]
    return float(value) if isinstance(value, str) and _FLOAT.fullmatch(value) else value


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases, by which a small file can stand for a huge one, and without repeated names."""

    def compose_node(self, parent, index):
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)

    def construct_mapping(self, node, deep=False):
        names = [name.value for name, _ in node.value]
        if repeated := {name for name in names if isinstance(name, str) and names.count(name) > 1}:
            raise yaml.YAMLError(f"{', '.join(sorted(repeated))} is given twice")
        return super().construct_mapping(node, deep=deep)
