"""Equations for given widths: one for each coordinate."""

from collections.abc import Mapping
from typing import Any

import sympy

from .drifts import first_order, labels, second_order, symbol_of
from .moments import SymbolicMoments
from .notation import Alphabet
from .result import Lines, SymbolicLimit
from .writing import assignments, function, latex_sum, module


def conditions(alphabet: Alphabet) -> tuple[str, ...]:
    """What the equations take for granted, in LaTeX."""
    found = []
    if alphabet.sphere:
        found.append(f"{alphabet.name('Q')}{'' if alphabet.p == 1 else '_{jj}'} = 1")
    if alphabet.orthonormal_teachers:
        found.append(f"{alphabet.name('P')} = {'1' if alphabet.k == 1 else 'I'}")
    return (*found, *(rf"{alphabet.letter(family)} = \text{{{family}}}" for family in alphabet.families[2:]))


def in_indices(
    alphabet: Alphabet,
    moments: SymbolicMoments,
    limit: str,
    covariance: sympy.Matrix | None = None,
    extra: Mapping[str, Any] | None = None,
) -> SymbolicLimit:
    """The result for given widths.

    **Arguments:**

    - `moments`: the means.
    - `covariance`: of the increment of one sample, times d.
    - `extra`: further fields of the result, in place of those made here.
    """
    per_clock, batch = alphabet.alpha_per_clock, alphabet.batch_size
    flow, corrector = first_order(alphabet, moments), second_order(alphabet, moments)
    symbols = {name: symbol_of(alphabet, label) for name, label in labels(alphabet).items()}
    corrections = {name: moments.simplified(per_clock * corrector[name]) for name in symbols}
    drift = {name: moments.simplified(per_clock * (flow[name] + corrector[name])) for name in symbols}
    risk = moments.simplified(alphabet.notation.risk_factor * moments.risk)
    if covariance is not None:
        factor = per_clock / (batch**2 * alphabet.d)
        covariance = covariance.applyfunc(lambda entry: sympy.expand(factor * entry))

    def lines() -> Lines:
        clock = sympy.latex(alphabet.clock)
        found = [
            (rf"\frac{{d {sympy.latex(symbols[key])}}}{{d {clock}}}", latex_sum(side, alphabet.rate))
            for key, side in drift.items()
        ]
        if covariance is not None:
            names = [sympy.latex(symbol) for symbol in symbols.values()]
            found += [
                (
                    rf"\frac{{d \langle {names[a]}, {names[b]} \rangle}}{{d {clock}}}",
                    latex_sum(alphabet.d * covariance[a, b], alphabet.rate, over=alphabet.d),
                )
                for a in range(len(names))
                for b in range(a, len(names))
            ]
        return (*found, (alphabet.name("risk"), latex_sum(risk, alphabet.rate)))

    def source() -> str:
        return _source(alphabet, drift, risk, covariance)

    return alphabet.result(
        limit,
        symbols=symbols,
        drift=drift,
        corrector=corrections,
        risk=risk,
        covariance=covariance,
        **{"_lines": lines, "_conditions": conditions(alphabet), "_source": source, **(extra or {})},
    )


def arguments(alphabet: Alphabet, *, dimension: bool = False) -> str:
    """The arguments of generated functions: arrays first, then numbers by keyword with their values."""
    found = [alphabet.code_name("Q"), alphabet.code_name("M")]
    if not alphabet.orthonormal_teachers:
        found.append(alphabet.code_name("P"))
    arrays: dict[str, list[float]] = {}
    numbers: dict[str, float] = {}
    for symbol, value in alphabet.values.items():
        name = alphabet.code[symbol]
        if "[" in name:
            arrays.setdefault(name.partition("[")[0], []).append(value)
        else:
            numbers[name] = value
    found += [alphabet.code_name(field) for field in alphabet.arrays[2:]]
    found.append("*")
    if dimension:
        found.append(alphabet.code_name("d"))
    found += [alphabet.code[symbol] for symbol in alphabet.parameters if symbol not in alphabet.values]
    found += [f"{name}={tuple(values)!r}" for name, values in arrays.items()]
    found += [f"{name}={value!r}" for name, value in numbers.items()]
    return ", ".join(found).removesuffix(", *")


def described(alphabet: Alphabet) -> str:
    """A line for generated modules."""
    return f"{alphabet.problem!r} under {alphabet.algorithm!r}, in the limit of infinite dimension."


def _source(alphabet: Alphabet, drift: Mapping[str, Any], risk: Any, covariance: Any) -> str:
    names, fields = alphabet.code, alphabet.arrays
    shapes: dict[str, tuple[int, ...]] = {
        entries.name: (entries.rows, entries.columns) for entries in alphabet.coordinates.entries
    }
    shapes["readout"] = (alphabet.coordinates.readout_size,)
    symmetric = {entries.name for entries in alphabet.coordinates.entries if entries.pair[0] == entries.pair[1]}
    results = {field: f"d_{alphabet.code_name(field)}" for field in fields}
    targets = {}
    for key, side in drift.items():
        field, _, index = key.partition("[")
        indices = index.rstrip("]").split(",")
        target = f"{results[field]}[{', '.join(indices)}]"
        if field in symmetric and indices[0] != indices[1]:
            target = f"{target} = {results[field]}[{indices[1]}, {indices[0]}]"
        targets[target] = side
    start = [f"{results[field]} = np.zeros({shapes[field]})" for field in fields]
    given = arguments(alphabet)
    clock = alphabet.notation.clock.lstrip("\\")
    functions = [
        function(
            "drift",
            given,
            f"Derivatives of {', '.join(alphabet.code_name(field) for field in fields)} by {clock}.",
            start + assignments(targets, names),
            ", ".join(results.values()),
        ),
        function("risk", given, "The mean loss of a fresh sample.", assignments({"value": risk}, names), "value"),
    ]
    if covariance is not None:
        size = covariance.shape[0]
        entries = {
            f"matrix[{a}, {b}]" + (f" = matrix[{b}, {a}]" if a != b else ""): covariance[a, b]
            for a in range(size)
            for b in range(a, size)
        }
        functions.append(
            function(
                "covariance",
                arguments(alphabet, dimension=True),
                f"Covariance of the coordinates ({', '.join(drift)}) gained per unit of {clock}.",
                [f"matrix = np.zeros(({size}, {size}))", *assignments(entries, names)],
                "matrix",
            )
        )
    return module(described(alphabet), functions)
