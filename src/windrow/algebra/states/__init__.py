"""Partial states: an aggregate over some rows, kept so that it can be joined with the rest.

A tile holds the states of its rows, the online store those of a key, a view those of a group, and
a request combines a few of them. A state is lifted from updates, combined with others in any
grouping, subtracted where the function's law allows it, lowered to the result, and written as
bytes that are stored for years.

States of one function over values of one type are handled, whole columns at a time, by

    >>> from windrow.algebra.functions.sums import Sum
    >>> states = States.of(Sum(), pa.int64())
    >>> groups = np.array([0, 0, 1])
    >>> made = states.lift(pa.array([1, 2, 40]), None, groups, 2)
    >>> states.lower(states.combine(made, np.array([0, 0]), 1)).to_pylist()
    [43]

Rows are counted apart from values, so that "no rows", "no values" and "a value" differ:

    >>> diffs = np.array([1, 1, -1])
    >>> made = states.lift(pa.array([7, None, 7]), None, np.array([0, 0, 0]), 2, diffs)
    >>> states.rows(made).tolist(), states.lower(made).to_pylist()
    ([1, 0], [None, None])
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.algebra.codec import read_states, write_states
from windrow.algebra.function import Function
from windrow.algebra.grouping import group_sums
from windrow.algebra.kinds.kind import COUNTERS, Columns, Held, Kind, Rows
from windrow.algebra.states.header import Header
from windrow.errors import DataError, DefinitionError
from windrow.rows.types import canonical_type


@dataclass(frozen=True)
class States:
    """The partial states of one function over values of one type. Made by `States.of`.

    `column` is what messages say the values are from.
    """

    function: Function
    value_type: pa.DataType
    column: str = ""

    @staticmethod
    def of(function: Function, value_type: pa.DataType, column: str = "") -> States:
        """The states of `function` over `value_type`, the type of one input value."""
        where = column or "the values"
        function.result_type(value_type, where)
        return States(function, canonical_type(value_type, where), column)

    @functools.cached_property
    def kind(self) -> Kind:
        """How the values are held."""
        return self.function.state(self.value_type)

    @functools.cached_property
    def fields(self) -> list[pa.Field]:
        return [*COUNTERS, *self.kind.fields]

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of a column of states: a struct, without NULLs."""
        return pa.struct(self.fields)

    @property
    def invertible(self) -> bool:
        """Whether states take retractions, and can be subtracted."""
        return self.function.law.invertible

    @property
    def header(self) -> Header:
        """What the bytes of every state begin with. Equal headers: states that can be shared."""
        return Header(self.function.code, self.kind.value_type, self.kind.parameters)

    def lift(
        self,
        values: pa.Array,
        times: np.ndarray | None,
        groups: np.ndarray,
        count: int,
        diffs: np.ndarray | None = None,
    ) -> pa.Array:
        """One state for each group, of the rows in it.

        A NULL value counts as a row, and not as a value. `times` are int64 milliseconds (None
        where the function does not depend on the order of rows), `groups` int64 in [0, count).
        `diffs` (int64; None is once each) say how often each row is there; a negative one retracts
        rows, which only groups allow. A group without rows has the empty state, which
        combines without effect.
        """
        if times is None:
            if self.function.ordered:
                raise DefinitionError(f"{self._title}: the order of rows counts; give their times")
            times = np.zeros(len(values), np.int64)
        if diffs is not None:
            if not self.invertible and (diffs < 0).any():
                raise self._not_invertible()
            if (diffs == 1).all():
                diffs = None
        rows = _tally(groups, diffs, count)
        filled = rows
        keep = np.ones(groups.size, np.bool_) if diffs is None else diffs != 0
        if values.null_count:
            valid = values.is_valid().to_numpy(zero_copy_only=False)
            filled = _tally(groups[valid], None if diffs is None else diffs[valid], count)
            keep &= valid
        if not keep.all():
            values, times, groups = values.filter(pa.array(keep)), times[keep], groups[keep]
            diffs = None if diffs is None else diffs[keep]
        lifted = self.kind.lift(Rows(values, times, groups, diffs), count)
        return self._made(rows, filled, lifted)

    def combine(self, states: pa.Array, groups: np.ndarray, count: int) -> pa.Array:
        """One state for each group, of all the rows behind the states in it."""
        rows, filled, *columns = states.flatten()
        return self._made(
            group_sums(rows.to_numpy(zero_copy_only=False), groups, count),
            group_sums(filled.to_numpy(zero_copy_only=False), groups, count),
            self.kind.combine(columns, groups, count),
        )

    def invert(self, states: pa.Array) -> pa.Array:
        """States that cancel these: of the same rows, retracted."""
        if not self.invertible:
            raise self._not_invertible()
        rows, filled, *columns = states.flatten()
        return self._made(
            -rows.to_numpy(zero_copy_only=False),
            -filled.to_numpy(zero_copy_only=False),
            self.kind.invert(columns),
        )

    def subtract(self, states: pa.Array, others: pa.Array) -> pa.Array:
        """Each state without the rows of the other at its place, which it has to contain."""
        size = len(states)
        both = pa.concat_arrays([states, self.invert(others)])
        return self.combine(both, np.tile(np.arange(size), 2), size)

    def rows(self, states: pa.Array) -> np.ndarray:
        """How many rows each state has, those with NULL included; a group without rows is none."""
        found: np.ndarray = states.flatten()[0].to_numpy(zero_copy_only=False)
        return found

    def lower(self, states: pa.Array) -> pa.Array:
        """The results, of the function's result type; without values 0 for counts, or NULL."""
        held = self._held(states.flatten())
        rows = self.rows(states)
        with about(self.column):
            if (held.count < 0).any() or (rows < held.count).any() or not self.kind.is_whole(held):
                raise DataError(
                    f"more was subtracted from a state of {self.function.name} than it held"
                )
            result = self.function.lower(held)
        expected = self.function.result(self.value_type)
        return result if result.type == expected else result.cast(expected)

    def empty(self, count: int) -> pa.Array:
        """`count` states of no rows."""
        nothing = np.zeros(0, np.int64)
        return self.lift(pa.array([], self.value_type), nothing, nothing, count)

    def serialise(self, states: pa.Array) -> pa.Array:
        """The bytes of each state, to be stored; any later release reads them or refuses."""
        rows, filled, *columns = states.flatten()
        # NULLs are fewer than rows, often none: their number takes the least bytes.
        nulls = rows.to_numpy(zero_copy_only=False) - filled.to_numpy(zero_copy_only=False)
        return write_states([pa.array(nulls), filled, *columns], self.fields, self.header.written)

    def deserialise(self, data: pa.Array) -> pa.Array:
        """The states behind bytes made by `serialise` for the same kind of states."""
        header = self.header
        with about(self._title):
            header.check(data)
            nulls, filled, *columns = read_states(data, self.fields, len(header.written))
            rows = nulls.to_numpy() + filled.to_numpy()
            states = self._made(rows, filled.to_numpy(), columns)
            if not self.kind.is_sound(self._held(states.flatten())):
                raise DataError("the bytes of a state are damaged; rebuild the states")
        return states

    def _made(self, rows: np.ndarray, count: np.ndarray, columns: Columns) -> pa.Array:
        arrays = [pa.array(rows, pa.int64()), pa.array(count, pa.int64()), *columns]
        return pa.StructArray.from_arrays(arrays, fields=self.fields)

    def _held(self, arrays: Columns) -> Held:
        _, filled, *columns = arrays
        names = [field.name for field in self.kind.fields]
        count = filled.to_numpy(zero_copy_only=False)
        return Held(self.value_type, count, dict(zip(names, columns, strict=True)))

    @property
    def _title(self) -> str:
        label = self.function.label
        return f"{self.column}_{label}" if self.column else label

    def _not_invertible(self) -> DefinitionError:
        where = f"{self.column}: " if self.column else ""
        return DefinitionError(f"{where}{self.function.law.refusal(self.function.name)}")


def _tally(groups: np.ndarray, diffs: np.ndarray | None, count: int) -> np.ndarray:
    if diffs is None:
        return np.bincount(groups, minlength=count)
    found: np.ndarray = group_sums(diffs, groups, count)
    return found


@contextmanager
def about(where: str) -> Iterator[None]:
    """Errors within begin with `where`: functions do not know which column their values are of."""
    try:
        yield
    except DataError as error:
        if not where:
            raise
        raise DataError(f"{where}: {error}") from error.__cause__
