"""What a study is: a description that a file holds, checked before anything runs."""

import math
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from pydantic import Field

from .. import registry
from ..errors import InvalidInput, shown
from ..yaml_files import with_numbers

_MOST_CELLS = 10**9  # a cell's number seeds its random key, which holds 32 bits
_MOST_POINTS = 10**7  # along one axis: they are held in memory
_MOST_SAMPLES = 2**53  # of a run: more are centuries of computing

# Names of arrays in the store; `a.b` is the attribute b of the attribute a.
QuantityName = Annotated[str, Field(pattern=r"^[A-Za-z]\w*(\.[A-Za-z]\w*)*$", max_length=200)]
Value = bool | int | float | str
Settings = dict[str, Any]


class _Checked(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Grid(_Checked):
    """Evenly spaced values, on a linear or a logarithmic scale, both ends included."""

    start: float = Field(alias="from")
    to: float
    points: int = Field(default=33, ge=2, le=_MOST_POINTS)
    scale: Literal["linear", "log"] = "linear"

    @pydantic.model_validator(mode="after")
    def _increases(self) -> "Grid":
        if not -math.inf < self.start < self.to < math.inf:
            raise ValueError(f"from = {self.start:g} to = {self.to:g} was given; it must increase")
        if self.scale == "log" and self.start <= 0:
            raise ValueError(f"from = {self.start:g} was given with scale: log; it must be positive")
        return self

    def at(self, fraction: np.ndarray) -> np.ndarray:
        """The values at these fractions of the way from one end to the other."""
        if self.scale == "log":
            return self.start * (self.to / self.start) ** fraction
        return self.start + (self.to - self.start) * fraction


def _of_one_kind(values: list[Value]) -> list[Value]:
    """The values of an axis, which are all numbers, all words, or all true or false."""
    kinds = {bool if isinstance(value, bool) else str if isinstance(value, str) else float for value in values}
    if len(kinds) > 1:
        raise ValueError("the values of an axis must be all numbers, all words, or all true or false")
    if kinds == {float} and not all(abs(value) < 2**63 for value in values if not isinstance(value, str)):
        raise ValueError("numbers along an axis must be finite, and smaller than 2^63")
    return values


Axis = Grid | Annotated[list[Value], Field(min_length=1), pydantic.AfterValidator(_of_one_kind)]


class ExitTime(_Checked):
    """Simulate SGD until it leaves its plateau; `alpha` is how long to wait, `threshold` the excess risk to lose."""

    name: Literal["exit_time"]
    d: int = Field(default=1_000, ge=2)
    alpha: float = Field(default=100.0, gt=0)
    threshold: float = Field(default=0.1, gt=0, lt=1)


class Simulate(_Checked):
    """Simulate SGD from random starts up to `alpha`; `observe` keeps the accuracy too, where samples have labels."""

    name: Literal["simulate"]
    d: int = Field(default=1_000, ge=2)
    alpha: float = Field(default=20.0, gt=0)
    observe: Literal["accuracy"] | None = None


class Solve(_Checked):
    """Solve the ODE, or gradient flow, from random starts in dimension `d`, or from students of overlap `overlap`."""

    name: Literal["solve"]
    limit: Literal["ode", "gradient_flow"] = "ode"
    alpha: float = Field(default=20.0, gt=0)
    d: int | None = Field(default=None, ge=2)
    overlap: float | None = Field(default=None, gt=-1, lt=1)
    tolerance: float = Field(default=1e-6, gt=0, lt=0.1)
    observe: Literal["accuracy"] | None = None

    @pydantic.model_validator(mode="after")
    def _one_start(self) -> "Solve":
        if (self.d is None) == (self.overlap is None):
            raise ValueError("give either d, for random starts, or overlap, for students with that overlap each")
        return self


class FixedPoints(_Checked):
    """Find the fixed points of the ODE from `starts` random starts."""

    name: Literal["fixed_points"]
    starts: int = Field(default=256, ge=1)


class DMFT(_Checked):
    """Solve the mean-field theory of reused data up to `time`, from students with overlap `overlap`."""

    name: Literal["dmft"]
    time: float = Field(default=1.0, gt=0)
    overlap: float = Field(default=0.1, gt=-1, lt=1)
    error: float = Field(default=0.01, gt=0)
    paths: int = Field(default=8_192, ge=2)
    most_populations: int = Field(default=32, ge=2)
    flow: bool = True


_ANALYSES = {name.rpartition(".")[2]: name for name in registry.stated("analysis")}


def _stated_analysis(name: str) -> str:
    if name not in _ANALYSES:
        raise ValueError(f"{shown(name)} was given; choose one of {', '.join(_ANALYSES)}")
    return name


class Analysis(_Checked):
    """Any public analysis whose result has numbers as attributes; `quantities` names those to keep."""

    name: Literal["analysis"]
    of: Annotated[str, pydantic.AfterValidator(_stated_analysis)]
    quantities: list[QuantityName] = Field(min_length=1, max_length=1_000)
    settings: Settings = {}

    @property
    def function(self) -> Callable[..., Any]:
        """The analysis itself."""
        return registry.load(_ANALYSES[self.of])


class Function(_Checked):
    """A function of your own by its import path, `package.module:name`; it returns a dict with the `quantities`."""

    name: Literal["function"]
    function: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    quantities: list[QuantityName] = Field(min_length=1, max_length=1_000)
    settings: Settings = {}
    vectorised: bool = False


Computation = Annotated[
    ExitTime | Simulate | Solve | FixedPoints | DMFT | Analysis | Function, Field(discriminator="name")
]


class Refinement(_Checked):
    """Compute cells where a quantity changes, until the change is located to a fraction of every axis."""

    quantity: str
    resolution: float = Field(default=0.02, gt=0, lt=0.5)
    most_cells: int = Field(default=4_096, ge=16, le=10**6)
    cells_per_round: int = Field(default=64, ge=1)


class Description(_Checked):
    """The fields of a study; see [`Study`]."""

    problem: Settings
    algorithm: Settings
    axes: dict[str, Axis] = Field(min_length=1)
    compute: Computation
    title: str = Field(default="", max_length=500)
    runs: int = Field(default=1, ge=1, le=10**6)
    seed: int = Field(default=0, ge=0, lt=2**63)
    target_error: float | None = Field(default=None, gt=0)
    most_runs: int | None = Field(default=None, ge=1)
    cells_per_task: int | None = Field(default=None, ge=1)
    timeout: float | None = Field(default=None, gt=0)
    refine: Refinement | None = None

    @pydantic.field_validator("problem", "algorithm", mode="before")
    @classmethod
    def _named(cls, settings: Any) -> Any:
        if not isinstance(settings, dict) or not isinstance(settings.get("name"), str):
            raise ValueError("give the name of it, such as PhaseRetrieval or OnlineSGD, and its arguments")
        return {name: with_numbers(value) for name, value in settings.items()}

    @pydantic.field_validator("axes", mode="before")
    @classmethod
    def _numbers(cls, axes: Any) -> Any:
        return {name: with_numbers(axis) for name, axis in axes.items()} if isinstance(axes, dict) else axes

    @pydantic.model_validator(mode="after")
    def _fits(self) -> "Description":
        settings = set(type(self.compute).model_fields) - {"name"}
        if isinstance(self.compute, Analysis | Function):
            settings = set(self.compute.settings)
        for name in self.axes:
            home, _, argument = name.rpartition(".")
            if home == "problem.spectrum" and ("problem.spectrum" in self.axes or not self._has_spectrum_settings):
                raise ValueError(
                    f"axis {name} was given; the problem needs spectrum: {{name: power_law, exponent: ..., dimensions: "
                    "...}, of which an axis is a setting"
                )
            known = ("problem", "problem.spectrum", "algorithm", "")
            if home not in known or not argument.isidentifier() or argument == "name":
                raise ValueError(f"axis {name} was given; name it problem.<argument>, algorithm.<argument> or d")
            if not home and argument not in settings:
                raise ValueError(f"axis {name} is no setting of {self.compute.name}, which has {sorted(settings)}")
        if self.refine is None and self.number_of_cells > _MOST_CELLS:
            raise ValueError(
                f"the axes have {self.number_of_cells:.3g} cells; at most {_MOST_CELLS:.0e} can be told apart"
            )
        if isinstance(self.compute, ExitTime | Simulate) and self._most("alpha") * self._most("d") > _MOST_SAMPLES:
            raise ValueError(
                f"alpha x d is {self._most('alpha') * self._most('d'):.3g} samples in a run: centuries of computing"
            )
        if self.target_error is not None and self.most_runs is None:
            raise ValueError("target_error was given; say with most_runs at how many runs a cell is given up")
        if self.target_error is not None and not is_random(self):
            raise ValueError("target_error was given, but one run of a cell has no error; give runs, at least 2")
        if self.refine is not None and not (
            len(self.axes) <= 3 and all(isinstance(axis, Grid) for axis in self.axes.values())
        ):
            raise ValueError("refine needs one to three axes, each with from and to")
        return self

    @property
    def number_of_cells(self) -> int:
        """How many cells the grid has."""
        return math.prod(axis.points if isinstance(axis, Grid) else len(axis) for axis in self.axes.values())

    @property
    def _has_spectrum_settings(self) -> bool:
        return isinstance(self.problem.get("spectrum"), dict)

    def _most(self, setting: str) -> float:
        """The largest value that a setting of the computation has in any cell."""
        axis = self.axes.get(setting, [getattr(self.compute, setting)])
        numbers = [axis.to] if isinstance(axis, Grid) else [value for value in axis if not isinstance(value, str)]
        return max(map(float, numbers), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """The description as plain data, with every default in place."""
        return self.model_dump(mode="json", by_alias=True)


def axis_values(axis: Axis) -> "list[Value] | np.ndarray":
    """The values along an axis."""
    return axis.at(np.linspace(0.0, 1.0, axis.points)) if isinstance(axis, Grid) else axis


def is_random(description: Description) -> bool:
    """Whether a cell is an average over runs, with an error."""
    return description.compute.name in ("exit_time", "simulate") or description.runs > 1


def checked(fields: Any) -> Description:
    """A description from plain data, or an error in words."""
    if not isinstance(fields, dict):
        raise InvalidInput("A study file holds names and values: problem, algorithm, axes, compute, ...")
    try:
        return Description.model_validate(fields)
    except pydantic.ValidationError as error:
        raise InvalidInput(in_words(error)) from error


def in_words(error: pydantic.ValidationError) -> str:
    """What is wrong with a description."""
    lines = [_line(problem) for problem in error.errors(include_url=False) if not _of_the_other_kind(problem)]
    return "The study is not well stated.\n  " + "\n  ".join(dict.fromkeys(lines))


def _line(problem: Any) -> str:
    # Pydantic names the alternatives of an axis as well, which the user has not.
    loc = [part for part in problem["loc"] if part != "Grid" and "[" not in str(part)]
    where = ".".join(str(part) for part in loc) or "study"
    if problem["type"] == "missing":
        return f"{where}: is not given"
    if problem["type"] == "union_tag_not_found":
        return f"{where}.name: is not given"
    if problem["type"] == "union_tag_invalid":
        return f"{where}.name: {problem['ctx']['tag']!r} was given; choose one of {problem['ctx']['expected_tags']}"
    if problem["type"] == "extra_forbidden":
        known = ", ".join(_fields(loc[:-1]))
        return f"{where}: there is no such key; {'.'.join(map(str, loc[:-1])) or 'a study'} has {known}"
    given = "" if isinstance(problem["input"], dict) else f" (given: {shown(problem['input']):.60})"
    return f"{where}: {problem['msg'].removeprefix('Value error, ')}{given}"


def _of_the_other_kind(problem: Any) -> bool:
    """Whether this is what is wrong with a grid as a list of values, or with a list as a grid: it is none."""
    kind = {"list_type": dict, "model_type": list, "model_attributes_type": list}.get(problem["type"], ())
    return isinstance(problem["input"], kind)


def _fields(loc: list[Any]) -> list[str]:
    """The keys that there are at a place of the file."""
    if loc[:1] == ["axes"]:
        model: type[pydantic.BaseModel] = Grid
    elif loc[:1] == ["refine"]:
        model = Refinement
    elif loc[:1] == ["compute"]:
        kinds = typing.get_args(typing.get_args(Computation)[0])
        model = next(kind for kind in kinds if typing.get_args(kind.model_fields["name"].annotation) == (loc[1],))
    else:
        model = Description
    return [field.alias or name for name, field in model.model_fields.items()]
