"""Partial states: an aggregate over some rows, kept so that it can be joined with the rest.

A tile holds the states of its rows, the online store those of a key, and a request combines a few
of them. A state is lifted from values, combined with others in any grouping, subtracted where the
aggregate's class allows it, lowered to the result, and written as bytes that rest for years.

This module says which aggregate has which state (`STATES`), and is the only one to import:
states of one aggregation over values of one type are handled, whole columns at a time, by

    >>> from windrow import agg
    >>> states = States.of(agg.sum("price"), pa.int64())
    >>> groups = np.array([0, 0, 1])
    >>> made = states.lift(pa.array([1, 2, 40]), np.zeros(3, np.int64), groups, 2)
    >>> states.lower(states.combine(made, np.array([0, 0]), 1)).to_pylist()
    [43]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.states.codec import read_states, varint, write_states
from windrow.algebra.states.numbers import Numbers, number_fields
from windrow.algebra.states.sketches import Frequents, Percentiles, Uniques
from windrow.algebra.states.values import Bests, Counts, Order
from windrow.errors import DataError
from windrow.rows.types import canonical_type

t = pa.types

FORMAT = 1  # the version of the bytes; a reader refuses every other


class Kind(Protocol):
    """How the states of one aggregation are handled; see `States` for what each method does."""

    @property
    def type(self) -> pa.DataType: ...
    @property
    def invertible(self) -> bool: ...
    def lift(
        self, values: pa.Array, times: np.ndarray, groups: np.ndarray, count: int
    ) -> pa.Array: ...
    def combine(self, states: pa.Array, groups: np.ndarray, count: int) -> pa.Array: ...
    def subtract(self, states: pa.Array, others: pa.Array) -> pa.Array: ...
    def lower(self, states: pa.Array) -> pa.Array: ...
    def check(self, states: pa.Array) -> bool: ...


Make = Callable[[Aggregation, pa.DataType], Kind]


@dataclass(frozen=True)
class Declared:
    """An aggregate's state. Aggregates with one `code` have the same states, byte for byte."""

    code: int
    make: Make
    has_type: bool = True  # whether the type of the values is part of the state
    has_k: bool = False  # whether k is


def _numbers(powers: int = 0, trues: bool = False) -> Make:
    return lambda a, type_: Numbers(a, type_, number_fields(type_, powers, trues))


def _best(order: Order) -> Make:
    return lambda a, type_: Bests(a, type_, order, 1 if order.single else a.k)


def _all(a: Aggregation, type_: pa.DataType) -> Kind:
    return Bests(a, type_, Order(by_time=True), None)


_VARIANCE = Declared(3, _numbers(powers=2))

# Codes are never given twice: bytes that rest somewhere hold them.
STATES: dict[str, Declared] = {
    "count": Declared(1, _numbers(), has_type=False),
    "sum": Declared(2, _numbers(powers=1)),
    "avg": Declared(2, _numbers(powers=1)),
    "var_pop": _VARIANCE,
    "var_samp": _VARIANCE,
    "stddev_pop": _VARIANCE,
    "stddev_samp": _VARIANCE,
    "skewness": Declared(4, _numbers(powers=3)),
    "kurtosis": Declared(5, _numbers(powers=4)),
    "bool_and": Declared(6, _numbers(trues=True)),
    "bool_or": Declared(6, _numbers(trues=True)),
    "min": Declared(7, _best(Order(single=True))),
    "max": Declared(8, _best(Order(descending=True, single=True))),
    "first": Declared(9, _best(Order(by_time=True, single=True))),
    "last": Declared(10, _best(Order(by_time=True, descending=True, single=True))),
    "first_k": Declared(11, _best(Order(by_time=True)), has_k=True),
    "last_k": Declared(12, _best(Order(by_time=True, descending=True)), has_k=True),
    "bottom_k": Declared(13, _best(Order()), has_k=True),
    "top_k": Declared(14, _best(Order(descending=True)), has_k=True),
    "unique_top_k": Declared(15, _best(Order(descending=True, unique=True)), has_k=True),
    "bounded_unique_count": Declared(16, _best(Order(unique=True)), has_k=True),
    "collect_list": Declared(17, _all),
    "unique_count": Declared(18, Counts),
    "histogram": Declared(18, Counts),
    "approx_percentile": Declared(19, Percentiles),
    "approx_unique_count": Declared(20, Uniques),
    "approx_frequent_k": Declared(21, Frequents, has_k=True),
}

_TYPE_CODES: dict[pa.DataType, int] = {
    pa.bool_(): 1,
    pa.int8(): 2,
    pa.int16(): 3,
    pa.int32(): 4,
    pa.int64(): 5,
    pa.float32(): 6,
    pa.float64(): 7,
    pa.date32(): 8,
    pa.timestamp("us", "UTC"): 9,
    pa.timestamp("us"): 10,
    pa.string(): 11,
    pa.binary(): 12,
}
_NESTED, _DECIMAL = 13, 64  # a decimal has 64 + its scale


def _type_code(type_: pa.DataType) -> int:
    if t.is_nested(type_):
        return _NESTED
    if t.is_decimal(type_):
        return _DECIMAL + int(type_.scale)
    return _TYPE_CODES[type_]


@dataclass(frozen=True)
class States:
    """The partial states of one aggregation over values of one type. Made by `States.of`."""

    aggregation: Aggregation
    value_type: pa.DataType
    kind: Kind

    @staticmethod
    def of(aggregation: Aggregation, value_type: pa.DataType) -> States:
        """The states of `aggregation` over `value_type`, a canonical type of one input value."""
        where = f"{aggregation.column}: {aggregation.operation.name}"
        aggregation.operation.result_type(value_type, where)
        value_type = canonical_type(value_type, where)
        made = STATES[aggregation.operation.name].make(aggregation, value_type)
        return States(aggregation, value_type, made)

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of a column of states: a struct, without NULLs."""
        return self.kind.type

    @property
    def invertible(self) -> bool:
        """Whether states can be subtracted."""
        return self.kind.invertible

    @property
    def header(self) -> bytes:
        """What the bytes of every state begin with: version, kind, type of values, k."""
        declared = STATES[self.aggregation.operation.name]
        code = _type_code(self.value_type) if declared.has_type else 0
        k = varint(self.aggregation.k or 0) if declared.has_k else b""
        return bytes([FORMAT, declared.code, code]) + k

    def lift(self, values: pa.Array, times: np.ndarray, groups: np.ndarray, count: int) -> pa.Array:
        """One state for each group, of the values in it.

        `values` has no NULLs; `times` are int64 milliseconds, `groups` int64 in [0, count). A
        group without values has the empty state, which combines without effect.
        """
        return self.kind.lift(values, times, groups, count)

    def combine(self, states: pa.Array, groups: np.ndarray, count: int) -> pa.Array:
        """One state for each group, of all the values behind the states in it."""
        return self.kind.combine(states, groups, count)

    def subtract(self, states: pa.Array, others: pa.Array) -> pa.Array:
        """Each state without the values of the other at its place, which it has to contain."""
        return self.kind.subtract(states, others)

    def lower(self, states: pa.Array) -> pa.Array:
        """The results, of the operation's result type; of an empty state 0 for counts, or NULL."""
        result = self.kind.lower(states)
        expected = self.aggregation.operation.result(self.value_type)
        return result if result.type == expected else result.cast(expected)

    def empty(self, count: int) -> pa.Array:
        """`count` states of no values."""
        nothing = np.zeros(0, np.int64)
        return self.lift(pa.array([], self.value_type), nothing, nothing, count)

    def serialise(self, states: pa.Array) -> pa.Array:
        """The bytes of each state, to rest in a store; any later release reads them or refuses."""
        return write_states(states, self.header)

    def deserialise(self, data: pa.Array) -> pa.Array:
        """The states behind bytes made by `serialise` for the same kind of states."""
        where = f"{self.aggregation.column}_{self.aggregation.label}"
        header = self.header
        self._check_headers(data, header, where)
        states = read_states(data, self.type, len(header), where)
        if not self.kind.check(states):
            raise DataError(f"{where}: the bytes of a state are damaged; rebuild the states")
        return states

    def _check_headers(self, data: pa.Array, header: bytes, where: str) -> None:
        if data.null_count:
            raise DataError(f"{where}: the bytes of a state are NULL; leave such rows out")
        size = len(header)
        width = pc.binary_slice(data, 0, size) if len(data) else data
        wrong = pc.not_equal(width, pa.scalar(header, pa.binary()))
        at = pc.index(wrong, True).as_py()
        if at < 0:
            return
        found = width[at].as_py()
        if len(found) < 3:
            raise DataError(f"{where}: {found!r} is too short to be a state")
        if found[0] != FORMAT:
            raise DataError(
                f"{where}: a state has format version {found[0]}; this release reads version "
                f"{FORMAT}. Read it with the release that wrote it, or rebuild the states"
            )
        if found[1] != header[1]:
            names = [name for name, one in STATES.items() if one.code == found[1]]
            kind = " or ".join(names) or f"an unknown kind ({found[1]})"
            raise DataError(f"{where}: the bytes are a state of {kind}")
        if found[2] != header[2]:
            raise DataError(
                f"{where}: a state is over values of another type than {self.value_type}"
            )
        raise DataError(f"{where}: a state was made with another k than {self.aggregation.k}")
