"""The functions that are declared, by name. Importing `algebra.functions` fills it."""

from __future__ import annotations

from typing import TypeVar

from windrow.algebra.function import Function
from windrow.errors import DefinitionError

F = TypeVar("F", bound=type[Function])

FUNCTIONS: dict[str, type[Function]] = {}
LARGEST_CODE = 255


def declare(function: F) -> F:
    """Make a function known by its name: `agg` and the tests of laws find it here.

    Names, and codes of states that differ, are never given twice.
    """
    where = f"{function.__module__}.{function.__qualname__}"
    missing = [a for a in ("name", "law", "takes", "code") if not hasattr(function, a)]
    if missing:
        raise DefinitionError(f"{where}: declares no {', no '.join(missing)}")
    name, code = function.name, function.code
    if not name.isidentifier():
        raise DefinitionError(f"{where}: {name!r} is not a name that can be called")
    if not 1 <= code <= LARGEST_CODE:
        raise DefinitionError(f"{where}: code is {code}; it is one byte, from 1 to {LARGEST_CODE}")
    known = FUNCTIONS.get(name)
    if known is not None and (known.__module__, known.__qualname__) != (
        function.__module__,
        function.__qualname__,
    ):
        raise DefinitionError(f"{where}: {name!r} is {known.__module__}.{known.__qualname__}")
    for other in FUNCTIONS.values():
        if other.code == code and other.name != name and other.state is not function.state:
            raise DefinitionError(
                f"{where}: code {code} is that of {other.name}, whose states are others; bytes "
                "that are stored somewhere hold it, so take one that was never used"
            )
    FUNCTIONS[name] = function
    return function


def names_of(code: int) -> list[str]:
    """The functions whose states have this code: they share them."""
    return [name for name, function in FUNCTIONS.items() if function.code == code]
