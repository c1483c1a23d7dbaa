"""A table of measurements in a CSV file under docs/data, to which rows are added as they are measured."""

import csv
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "docs" / "data"


class Table:
    """Rows that are in the file are not measured again, so that the work can be stopped and taken up.

    **Arguments:**

    - `name`: the file's name, without its ending.
    - `columns`: the names of all columns, in their order.
    - `keys`: the columns that say which row it is.
    """

    def __init__(self, name: str, columns: tuple[str, ...], keys: tuple[str, ...]):
        self.path, self.columns, self.keys = DATA / f"{name}.csv", columns, keys

    def rows(self) -> dict[tuple[str, ...], dict[str, str]]:
        """What is in the file, by its keys."""
        if not self.path.exists():
            return {}
        with self.path.open(newline="") as file:
            return {tuple(row[key] for key in self.keys): row for row in csv.DictReader(file)}

    def __contains__(self, keys: tuple[object, ...]) -> bool:
        return tuple(_written(key) for key in keys) in self.rows()

    def add(self, row: dict[str, object], *, digits: int = 6) -> None:
        """One row more, at once, or another in its place: numbers with so many digits, the rest as it prints."""
        written = {name: _written(value, digits) for name, value in row.items()}
        rows = self.rows() | {tuple(written[key] for key in self.keys): written}
        self.path.parent.mkdir(exist_ok=True)
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows.values())


def _written(value: object, digits: int = 6) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
