"""The aggregates, as users write them: `agg.sum("price").over("7d")`.

Each function names a column; `.over` gives windows (none is lifetime), `.by` buckets, `.where` a
condition. Lists contribute their elements; maps are aggregated per key.

There is one for every function declared in `windrow.algebra.functions`, with its parameters after
the column. Editors read them in `agg.pyi`, which `make stubs` makes from the declarations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.function import Function
from windrow.algebra.functions import FUNCTIONS

Maker = Callable[..., Aggregation]


def _maker(function: type[Function]) -> Maker:
    own = inspect.signature(function)
    column = inspect.Parameter("column", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="str")
    parameters = [column, *own.parameters.values()]
    signature = own.replace(parameters=parameters, return_annotation="Aggregation")

    def make(*given: object, **named: object) -> Aggregation:
        try:
            bound = signature.bind(*given, **named)
        except TypeError as error:
            raise TypeError(f"agg.{function.name}{signature}: {error}") from None
        name, *values = bound.args
        return Aggregation(function(*values), name)

    make.__name__ = make.__qualname__ = function.name
    make.__doc__ = function.__doc__
    make.__signature__ = signature  # type: ignore[attr-defined]
    return make


def _makers() -> dict[str, Maker]:
    found = {}
    for function in FUNCTIONS.values():
        for name in (function.name, *function.aliases):
            found[name] = _maker(function)
    return found


def __getattr__(name: str) -> Maker:
    """Functions that were declared after this module was imported."""
    known = _makers()
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise AttributeError(f"there is no aggregate {name!r}{hint}", name=name, obj=None)


def __dir__() -> list[str]:
    return sorted(_makers())


globals().update(_makers())
