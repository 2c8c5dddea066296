"""When a served value and a backfilled one are equal: the one place that says so.

    numbers     integers, decimals: the same; floats: to 1e-9 of the larger; NaN equals NaN
    sketches    within twice the error that they state
    lists       of one length, element by element
    maps        of the same keys, value by value, in any order
    all else    the same value of its type

A value is empty if it is NULL or, of counts, 0. Two values then have one of five outcomes. Their
error is 0 for equal bits, the relative difference of numbers, the largest one within a list, map or
struct, and 1 for what cannot be measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from windrow.consistency.sketches import Sketch
from windrow.errors import SchemaError
from windrow.rows.hashing import fixed_width
from windrow.rows.lists import list_parts
from windrow.rows.types import canonical_type, canonical_values, is_nested, single_chunk

FLOATS = 1e-9  # of the larger of two values
t = pa.types


class Outcome(IntEnum):
    """Of one comparison. Their names, in lower case, are those of reports and tables."""

    EQUAL = 0
    BOTH_EMPTY = 1
    ONLY_ONLINE = 2
    ONLY_OFFLINE = 3
    DIFFERENT = 4

    @property
    def label(self) -> str:
        return self.name.lower()


OUTCOMES = tuple(outcome.label for outcome in Outcome)


@dataclass(frozen=True)
class Rule:
    """How the values of a feature are compared. Picklable: tasks carry it."""

    counts: bool = False  # 0 is the value of nothing
    sketch: Sketch | None = None


@dataclass(frozen=True)
class Compared:
    """Of each pair of values: its outcome, and its error."""

    outcomes: np.ndarray  # int8
    errors: np.ndarray  # float64


def compare(
    online: pa.Array, offline: pa.Array, rule: Rule, beside: pa.Array | None = None
) -> Compared:
    """Compare values pair by pair; `beside` is what a sketch is judged by.

    Most are the same, which one pass over both tells; only the others are looked at closely.
    """
    online, offline = aligned(single_chunk(online), single_chunk(offline))
    outcomes, errors = np.empty(len(online), np.int8), np.zeros(len(online))
    others = _first_look(online, offline, rule, outcomes)
    if others is None:
        return _compare(online, offline, rule, beside)
    if others.size:
        places = pa.array(others)
        known = None if beside is None else beside.take(places)
        found = _compare(online.take(places), offline.take(places), rule, known)
        outcomes[others], errors[others] = found.outcomes, found.errors
    return Compared(outcomes, errors)


def _first_look(
    online: pa.Array, offline: pa.Array, rule: Rule, outcomes: np.ndarray
) -> np.ndarray | None:
    """The outcomes of pairs with the very same value, or none; returns the places of all others.

    None if that is not told at a glance.
    """
    type_ = online.type
    if is_nested(type_) or t.is_null(type_):
        return None
    if t.is_int64(type_) or t.is_float64(type_):
        dtype = np.int64 if t.is_int64(type_) else np.float64
        a, b = (fixed_width(one).view(dtype) for one in (online, offline))
        others: np.ndarray = _look(a, b, _valid(online), _valid(offline), rule.counts, outcomes)
        return others
    same = pc.fill_null(pc.equal(online, offline), True).to_numpy(zero_copy_only=False)
    if online.null_count or offline.null_count:
        valid = [one.is_valid().to_numpy(zero_copy_only=False) for one in (online, offline)]
        same = same & (valid[0] == valid[1])
    outcomes[:] = np.where(_there(online, rule), Outcome.EQUAL, Outcome.BOTH_EMPTY)
    return np.flatnonzero(~same)


def _valid(values: pa.Array) -> np.ndarray:
    """Whether each value is there; of no length if all are."""
    if not values.null_count:
        return np.zeros(0, np.bool_)
    valid: np.ndarray = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


_EQUAL, _BOTH_EMPTY = int(Outcome.EQUAL), int(Outcome.BOTH_EMPTY)


@njit(cache=True, nogil=True)
def _look(a: Any, b: Any, a_valid: Any, b_valid: Any, counts: Any, outcomes: Any) -> Any:
    others = np.empty(a.size, np.int64)
    found = 0
    for i in range(a.size):
        there = a_valid.size == 0 or a_valid[i]
        if there != (b_valid.size == 0 or b_valid[i]) or (there and a[i] != b[i]):
            others[found] = i
            found += 1
        elif there and not (counts and a[i] == 0):
            outcomes[i] = _EQUAL
        else:
            outcomes[i] = _BOTH_EMPTY
    return others[:found]


def _compare(online: pa.Array, offline: pa.Array, rule: Rule, beside: pa.Array | None) -> Compared:
    there = [_there(values, rule) for values in (online, offline)]
    outcomes = np.full(len(online), Outcome.DIFFERENT, np.int8)
    outcomes[~there[0] & ~there[1]] = Outcome.BOTH_EMPTY
    outcomes[there[0] & ~there[1]] = Outcome.ONLY_ONLINE
    outcomes[~there[0] & there[1]] = Outcome.ONLY_OFFLINE
    errors = np.where(there[0] == there[1], 0.0, 1.0)
    both = np.flatnonzero(there[0] & there[1])
    if both.size:
        every = both.size == len(online)
        served = online if every else online.take(pa.array(both))
        computed = offline if every else offline.take(pa.array(both))
        same, error = _match(served, computed)
        if rule.sketch is not None and not same.all():
            unequal = np.flatnonzero(~same)
            places = pa.array(unequal)
            known = None if beside is None else beside.take(pa.array(both[unequal]))
            same[unequal] = rule.sketch.agree(served.take(places), computed.take(places), known)
        outcomes[both[same]] = Outcome.EQUAL
        errors[both] = error
    return Compared(outcomes, errors)


def aligned(online: pa.Array, offline: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Both in the one type in which they are compared."""
    type_ = common_type(online.type, offline.type)
    online, offline = (
        values if values.type == type_ else values.cast(type_, safe=False)
        for values in (online, offline)
    )
    if not is_nested(type_):
        return online, offline
    return canonical_values(online), canonical_values(offline)


def common_type(online: pa.DataType, offline: pa.DataType) -> pa.DataType:
    """The type in which values of two are compared; a SchemaError if they never can be equal."""
    wanted = canonical_type(offline, "a feature")
    if t.is_null(online):
        return wanted
    found = canonical_type(online, "a served value")
    if found == wanted:
        return wanted
    if t.is_integer(found) and t.is_integer(wanted):
        return pa.int64()
    if t.is_decimal(found) and t.is_decimal(wanted) and found.scale == wanted.scale:
        return found if found.precision > wanted.precision else wanted
    if _is_number(found) and _is_number(wanted):
        return pa.float64()
    if t.is_list(found) and t.is_list(wanted):
        item = common_type(found.value_type, wanted.value_type)
        return pa.list_(pa.field("element", item))
    if t.is_map(found) and t.is_map(wanted):
        key = common_type(found.key_type, wanted.key_type)
        return pa.map_(key, common_type(found.item_type, wanted.item_type))
    if t.is_timestamp(found) and t.is_timestamp(wanted):
        return wanted
    raise SchemaError(f"values of {online} cannot be compared with those of {offline}")


def _is_number(type_: pa.DataType) -> bool:
    return bool(t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_))


def _there(values: pa.Array, rule: Rule) -> np.ndarray:
    found = values.is_valid()
    if rule.counts and _is_number(values.type):
        found = pc.fill_null(pc.not_equal(values, pa.scalar(0).cast(values.type)), False)
    valid: np.ndarray = found.to_numpy(zero_copy_only=False)
    return valid


def _match(a: pa.Array, b: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Where two arrays of one type are equal, and by how much they are not."""
    there = [one.is_valid().to_numpy(zero_copy_only=False) for one in (a, b)]
    same = there[0] == there[1]
    errors = np.where(same, 0.0, 1.0)
    both = np.flatnonzero(there[0] & there[1])
    if both.size == len(a):
        return _match_valid(a, b)
    if both.size:
        places = pa.array(both)
        same[both], errors[both] = _match_valid(a.take(places), b.take(places))
    return same, errors


def _match_valid(a: pa.Array, b: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    type_ = a.type
    if t.is_floating(type_):
        return _floats(*(one.to_numpy(zero_copy_only=False).astype(np.float64) for one in (a, b)))
    if t.is_list(type_) or t.is_map(type_):
        return _lists(a, b)
    if t.is_struct(type_):
        same, errors = np.ones(len(a), np.bool_), np.zeros(len(a))
        for one, other in zip(a.flatten(), b.flatten(), strict=True):
            found, error = _match(one, other)
            same &= found
            errors = np.maximum(errors, error)
        return same, errors
    same = pc.equal(a, b).to_numpy(zero_copy_only=False).copy()
    if t.is_null(type_) or not _is_number(type_):
        return same, np.where(same, 0.0, 1.0)
    numbers = [one.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) for one in (a, b)]
    return same, np.where(same, 0.0, relative(*numbers))


def relative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The difference of numbers, by the larger; 1 where one of them is not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.maximum(np.abs(a), np.abs(b))
        # At most 2; where the difference overflows, the two are of opposite signs.
        found = np.minimum(np.abs(a - b) / np.where(largest > 0, largest, 1.0), 2.0)
        return np.where(np.isfinite(a) & np.isfinite(b), found, 1.0)


def _floats(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    exact = (a == b) | (np.isnan(a) & np.isnan(b))
    errors = np.where(exact, 0.0, relative(a, b))
    return exact | (errors <= FLOATS), errors


def _lists(a: pa.Array, b: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    (starts, ours), (others, theirs) = list_parts(a), list_parts(b)
    lengths = np.diff(starts)
    same = lengths == np.diff(others)
    errors = np.where(same, 0.0, 1.0)
    pairs = np.flatnonzero(same & (lengths > 0))
    if pairs.size:
        counts = lengths[pairs]
        first = np.cumsum(counts) - counts
        within = np.arange(int(counts.sum())) - np.repeat(first, counts)
        found, error = _match(
            ours.take(pa.array(np.repeat(starts[pairs], counts) + within)),
            theirs.take(pa.array(np.repeat(others[pairs], counts) + within)),
        )
        same[pairs] = np.logical_and.reduceat(found, first)
        errors[pairs] = np.maximum.reduceat(error, first)
    return same, errors
