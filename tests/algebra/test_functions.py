"""Declarations: each function once, and all that is derived from it."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from windrow import agg
from windrow.algebra.functions import FUNCTIONS
from windrow.algebra.functions.distinct import Histogram
from windrow.algebra.functions.order import TopK
from windrow.algebra.functions.sums import Sum, Total
from windrow.algebra.law import Law
from windrow.algebra.registry import declare
from windrow.algebra.stubs import stub
from windrow.errors import DefinitionError

SOURCE = Path(inspect.getfile(agg)).parent


def test_agg_has_every_function() -> None:
    for name, function in FUNCTIONS.items():
        make = getattr(agg, name)
        assert make.__name__ == name
        assert make.__doc__ == function.__doc__
        assert make.__module__ == "windrow.agg"
        first, *parameters = inspect.signature(make).parameters
        assert first == "column"
        assert parameters == list(inspect.signature(function).parameters)
    assert set(FUNCTIONS) | {"variance", "stddev"} == set(dir(agg))
    assert agg.variance("x").function == agg.var_samp("x").function
    assert agg.stddev(column="x") == agg.stddev_samp("x")
    assert agg.top_k("x", k=3).function == TopK(3)
    assert agg.histogram("x").function == Histogram(None) == Histogram()
    assert agg.approx_percentile("x", percentiles=[0.1]).function.identity == (
        "approx_percentile",
        (0.1,),
    )


def test_agg_says_what_it_lacks() -> None:
    with pytest.raises(AttributeError, match="no aggregate 'summ'; did you mean sum"):
        agg.summ("x")
    with pytest.raises(TypeError, match=r"agg.last_k\(column: .*: missing .* argument: 'k'"):
        agg.last_k("x")
    with pytest.raises(TypeError, match=r"agg.sum.*too many positional arguments"):
        agg.sum("x", 2)
    for wrong in (0, -1, True, 1.5, "2", None):
        with pytest.raises(DefinitionError, match=r"agg.top_k: k is .*; it has to be 1 or more"):
            agg.top_k("x", wrong)
    with pytest.raises(DefinitionError, match=r"agg.histogram: k is 10001; at most 10000"):
        agg.histogram("x", 10_001)
    for wrong in ([], [1.5], "0.5", 0.5, [None]):
        with pytest.raises(DefinitionError, match=r"agg.approx_percentile: percentiles are .*list"):
            agg.approx_percentile("x", wrong)
    with pytest.raises(DefinitionError, match=r"agg.sum: '' is not the name of a column"):
        agg.sum("")


def test_editors_know_every_function() -> None:
    """`agg.pyi` is what the declarations say."""
    found = (SOURCE / "agg.pyi").read_text()
    assert found == stub(), "agg.pyi is out of date: run make stubs"


def test_names_and_codes_are_given_once() -> None:
    @dataclass(frozen=True)
    class Other(Total):
        name = "sum"

    with pytest.raises(DefinitionError, match=r"'sum' is windrow.algebra.functions.sums.Sum"):
        declare(Other)

    class Unlike(Sum):
        name = "unlike"

        def state(self, value: pa.DataType) -> None:  # type: ignore[override]
            return None

    with pytest.raises(DefinitionError, match=r"code 2 is that of avg|code 2 is that of sum"):
        declare(Unlike)
    Unlike.code = 256
    with pytest.raises(DefinitionError, match="code is 256; it is one byte"):
        declare(Unlike)
    Unlike.name = "not a name"
    with pytest.raises(DefinitionError, match="'not a name' is not a name that can be called"):
        declare(Unlike)

    @dataclass(frozen=True)
    class Bare(Total):
        pass

    with pytest.raises(DefinitionError, match="declares no name"):
        declare(Bare)
    assert "unlike" not in FUNCTIONS
    assert declare(Sum) is Sum  # a module that is loaded again declares the same


def test_the_law_decides() -> None:
    assert [law for law in Law if law.invertible] == [Law.GROUP]
    assert [law for law in Law if not law.bounded] == [Law.BASIC]
    assert Law.LATTICE.refusal("max") == (
        "states of max (class lattice) cannot be subtracted; rebuild them from the values that "
        "remain"
    )
    assert Law.BASIC.refusal("all").endswith("from every value that remains")


def test_no_other_place_asks_for_a_name() -> None:
    """Whoever needs to know asks the declaration: its law, its types, its state."""
    words = [name for name in FUNCTIONS if "_" in name or name in ("sum", "avg", "histogram")]
    asks = re.compile(
        r"[\"'](" + "|".join(words) + r")[\"']"  # a name in quotes
        r"|function\.name\s*(==|!=|in\b)|\.law\s*(==|!=|is\b|in\b)"
    )
    declared = SOURCE / "algebra" / "functions"
    for path in SOURCE.glob("**/*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if declared not in path.parents and path.parts[-2] != "templates":
                assert not asks.search(line), f"{path.name}:{number}: {line.strip()}"
