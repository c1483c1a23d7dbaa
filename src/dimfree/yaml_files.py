"""Files of plain data: YAML that runs no code."""

import collections
import re
from pathlib import Path
from typing import Any

import yaml

from .errors import InvalidInput

_LARGEST_FILE = 2**20
_LONGEST_NUMBER = 400  # characters: the largest float has 309 digits before its point
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")  # YAML takes 1e-3 for a word


def read(path: str | Path, *, what: str) -> Any:
    """The plain data of a file; no code in it is run.

    **Arguments:**

    - `what`: the file holds, such as `"a study"`, for errors.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)  # of a pipe or a device nobody knows the size before
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # a name that no file can have
        raise InvalidInput(f"{str(path)!r} cannot be read: {error}.") from error
    if len(content) > _LARGEST_FILE:
        raise InvalidInput(f"{path} has more than {_LARGEST_FILE:,} bytes; give the small file that states {what}.")
    try:
        return yaml.load(content, Loader=_PlainLoader)
    except RecursionError:
        raise InvalidInput(f"{path} is no YAML that {what} can be read from: it is nested too deeply.") from None
    except Exception as error:
        # Whatever it is: where a date or a number cannot be one, PyYAML lets out what Python says of it.
        raise InvalidInput(f"{path} is no YAML that {what} can be read from: {error}") from error


def with_numbers(value: Any) -> Any:
    """Words that are numbers as numbers."""
    if isinstance(value, list):
        return [with_numbers(item) for item in value]
    if isinstance(value, dict):
        return {name: with_numbers(item) for name, item in value.items()}
    return float(value) if isinstance(value, str) and _FLOAT.fullmatch(value) else value


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases, by which a small file can stand for a huge one, without repeated names and odd numbers."""

    def compose_node(self, parent, index):
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)

    def construct_mapping(self, node, deep=False):
        counts = collections.Counter(name.value for name, _ in node.value if isinstance(name.value, str))
        if repeated := [name for name, times in counts.items() if times > 1]:
            raise yaml.YAMLError(f"{', '.join(sorted(repeated))} is given twice")
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node):
        if len(node.value) > _LONGEST_NUMBER:
            raise yaml.YAMLError(f"a number has {len(node.value):,} characters; at most {_LONGEST_NUMBER} are read")
        if ":" in node.value:
            raise yaml.YAMLError(f"{node.value} is a number to base 60 in YAML; write it without colons, or in quotes")
        whole = node.tag.endswith(":int")
        return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)


for _tag in ("int", "float"):
    _PlainLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _PlainLoader.construct_number)
