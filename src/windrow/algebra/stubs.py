"""What `agg.pyi` says, so that editors and type checkers know the aggregates: `make stubs`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from windrow.algebra.function import Function
from windrow.algebra.functions import FUNCTIONS

HEAD = '''"""Made by `make stubs` from the declarations in algebra/functions; do not edit."""

from collections.abc import Callable, Sequence

from windrow.algebra.aggregation import Aggregation

'''
TAIL = "def __getattr__(name: str) -> Callable[..., Aggregation]: ...\n"


def stub() -> str:
    """The text of `agg.pyi`."""
    return "".join([HEAD, *(line for f in FUNCTIONS.values() for line in _lines(f)), TAIL])


def _lines(function: type[Function]) -> Iterator[str]:
    given = ["column: str"]
    for parameter in inspect.signature(function).parameters.values():
        required = parameter.default is inspect.Parameter.empty
        default = "" if required else f" = {parameter.default!r}"
        given.append(f"{parameter.name}: {parameter.annotation}{default}")
    for name in (function.name, *function.aliases):
        yield f"def {name}({', '.join(given)}) -> Aggregation:\n"
        yield f'    """{function.__doc__}"""\n\n'


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(stub())
