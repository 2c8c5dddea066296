"""The stages of the first rows by themselves: histories in memory, against sorting all rows.

Each plan keeps what it writes in a table of weights, as its collections do, and is asked again at
every tick. Rows of a history are (group, x, s) with a weight; groups, values and texts are few, so
that there are ties and copies at the last row, and groups that vanish and return.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.errors import DataError
from windrow.rows.sortkeys import Direction
from windrow.updates import DIFF
from windrow.views.plan.hints import FAN_OUT, GroupSize
from windrow.views.run.task import Arranged
from windrow.views.run.top_monotonic import MonotonicTop
from windrow.views.run.top_stack import Level, StackedTop
from windrow.views.run.top_thinning import Thin
from windrow.views.run.topping import DENSE_RANK, RANK, ROW_NUMBER, Ranked, Top
from windrow.views.run.weighted import Weighted, concatenated, number_rows

Row = tuple[Any, ...]
COLUMNS = pa.schema([("g", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
NAN = float("nan")


@dataclass
class Memory:
    """In place of a task: state in memory, which a tick reads as it was before it."""

    state: dict[str, Weighted] = field(default_factory=dict)
    written: dict[str, Weighted] = field(default_factory=dict)
    run: Any = field(default_factory=lambda: SimpleNamespace(fill=False))

    def old(self, arranged: Arranged, keys: pa.Table) -> Weighted:
        found = self.state.get(arranged.collection)
        if found is None:
            return Weighted.empty(arranged.schema)
        if not arranged.has_key:
            return found
        (own, wanted), _ = number_rows([found.rows.select(list(arranged.key)), keys])
        return found.take(pa.compute.indices_nonzero(pa.array(_isin(own, wanted))).to_numpy())

    def write(self, arranged: Arranged, delta: Weighted) -> None:
        if arranged.first and delta.size:
            known = self.written.get(arranged.collection)
            both = [delta] if known is None else [known, delta]
            self.written[arranged.collection] = concatenated(both)

    def commit(self) -> dict[str, int]:
        """The end of a tick; how many records were written to each."""
        counts = {id: one.size for id, one in self.written.items()}
        for id, one in self.written.items():
            known = self.state.get(id)
            both = [one] if known is None else [known, one]
            self.state[id] = concatenated(both).consolidated()
            assert (self.state[id].weights > 0).all()
        self.written = {}
        return counts


def _isin(own: Any, wanted: Any) -> Any:
    import numpy as np

    return np.isin(own, wanted)


def ranked(function: str, limit: int, offset: int, grouped: bool, shows: bool) -> Ranked:
    columns = list(COLUMNS) if grouped else [*COLUMNS, pa.field("_all", pa.int8())]
    keys = ["order_key"] if function == ROW_NUMBER else ["order_key", "peer_key"]
    schema = pa.schema([*columns, *(pa.field(name, pa.binary()) for name in keys)])
    directions = (
        (1, Direction(ascending=False, nulls_first=False)),
        (0, Direction()),
        (2, Direction()),
    )
    key = ("g",) if grouped else ("_all",)
    return Ranked(schema, key, Top(function, limit, offset), directions, 1, 3, shows)


def given_table(changes: Counter[Row], grouped: bool) -> pa.Table:
    rows = list(changes)
    columns = [pa.array([row[i] for row in rows], f.type) for i, f in enumerate(COLUMNS)]
    names = list(COLUMNS.names)
    if not grouped:
        columns.append(pa.array([0] * len(rows), pa.int8()))
        names.append("_all")
    columns.append(pa.array([changes[row] for row in rows], pa.int64()))
    return pa.table(columns, names=[*names, DIFF])


def place(row: Row) -> tuple[Any, ...]:
    """The order of a row: x DESC NULLS LAST with NaN as the largest, then g and s, NULLs first."""
    group, x, text = row
    by_x = (1, 0.0) if x is None else (0, -math.inf, 0) if math.isnan(x) else (0, -x, 1)
    if x is not None and x == math.inf:
        by_x = (0, -math.inf, 1)
    return (by_x, (group is not None, group or 0), (text is not None, text or ""))


def expected(rows: Counter[Row], top: Top, grouped: bool, shows: bool) -> Counter[Row]:
    groups: dict[Any, list[Row]] = {}
    for row in rows.elements():
        groups.setdefault(row[0] if grouped else None, []).append(row)
    out: Counter[Row] = Counter()
    for members in groups.values():
        members.sort(key=place)
        values = list(dict.fromkeys(place(row)[0] for row in members))
        for at, row in enumerate(members):
            peers = place(row)[0]
            rank = {
                ROW_NUMBER: at + 1,
                RANK: 1 + sum(place(one)[0] < peers for one in members),
                DENSE_RANK: 1 + values.index(peers),
            }[top.function]
            if top.offset < rank <= top.depth:
                out[(*_plain(row), rank) if shows else _plain(row)] += 1
    return out


def _plain(row: Row) -> Row:
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in row)


def collected(tables: Iterator[pa.Table]) -> Counter[Row]:
    out: Counter[Row] = Counter()
    for table in tables:
        *columns, diffs = (column.to_pylist() for column in table.columns)
        for row, diff in zip(zip(*columns, strict=True), diffs, strict=True):
            out[_plain(row)] += diff
    return out


def stage(plan: str, of: Ranked, expected_size: int = 1) -> Any:
    gives = pa.schema([(f"c{i}", pa.int64()) for i in range(4 + of.shows)])
    about = (None, 0, of.schema, gives)
    if plan == "monotonic":
        return MonotonicTop(*about, of, Arranged("tops", of.key, of.schema, True))
    levels = []
    for n in reversed(range(GroupSize(expected_size).levels)):
        modulus = FAN_OUT**n
        bucket = None if modulus == 1 else "bucket"
        schema = of.schema if bucket is None else of.schema.append(pa.field(bucket, pa.int64()))
        key = of.key if bucket is None else (*(k for k in of.key if k != "_all"), bucket)
        levels.append(Level(Arranged(f"level{modulus}", key, schema, True), modulus, bucket))
    return StackedTop(*about, of, tuple(levels))


groups = st.sampled_from([None, 1, 2])
values = st.sampled_from([None, NAN, 2.0, 1.0, 0.0, -1.0, math.inf])
rows = st.tuples(groups, values, st.sampled_from([None, "", "a", "a\x00"]))
coming = st.lists(st.tuples(rows, st.integers(1, 3)), max_size=8)
going = st.lists(st.integers(0, 10**6), max_size=6)
tops = st.builds(
    Top,
    st.sampled_from([ROW_NUMBER, RANK, DENSE_RANK]),
    st.integers(1, 4),
    st.just(0),
) | st.builds(Top, st.just(ROW_NUMBER), st.integers(1, 3), st.integers(1, 6))


def counted(changes: list[tuple[Row, int]]) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for (group, x, text), count in changes:
        found[group, NAN if x is not None and math.isnan(x) else x, text] += count
    return found


@settings(max_examples=60, deadline=None)
@given(
    top=tops,
    grouped=st.booleans(),
    shows=st.booleans(),
    size=st.sampled_from([1, 17, 4_000_000_000]),
    history=st.lists(st.tuples(coming, going, st.booleans()), min_size=1, max_size=6),
)
def test_a_stack_equals_sorting_all_rows(
    top: Top, grouped: bool, shows: bool, size: int, history: Any
) -> None:
    of = ranked(top.function, top.limit, top.offset, grouped, shows and not top.offset)
    one, task = stage("stack", of, size), Memory()
    there: Counter[Row] = Counter()
    found: Counter[Row] = Counter()
    for come, go, everything in history:
        change = counted(come)
        present = sorted(there.elements(), key=place)
        gone = present if everything else [present[i % len(present)] for i in set(go) if present]
        for row in gone:
            if there[row] + change[row] > 0:
                change[row] -= 1
        change = Counter({row: n for row, n in change.items() if n})
        found.update(collected(one.compute(task, given_table(change, grouped))))
        task.commit()
        there.update(change)
        assert all(n >= 0 for n in there.values())
        assert +found == expected(+there, of.top, grouped, of.shows)
        assert not -found
        _check_levels(one, task, of)


def _check_levels(one: StackedTop, task: Memory, of: Ranked) -> None:
    """Each level holds the first rows of the buckets of the level below, and nothing else."""
    for below, above in zip(one.levels, one.levels[1:], strict=False):
        if below.arranged.collection not in task.state:
            continue
        held = task.state[below.arranged.collection]
        (numbers,), _ = number_rows([held.rows.select(below.key)])
        from windrow.shard.firsts import Rows, consolidated

        first = of.first(consolidated(Rows(held.rows, numbers, held.weights), of.order))
        kept = task.state.get(above.arranged.collection, Weighted.empty(above.arranged.schema))
        names = [name for name in of.schema.names if name != "_all"]
        both = [
            Weighted(first.table.select(names), first.weights),
            Weighted(kept.rows.select(names), -kept.weights),
        ]
        assert not concatenated(both).consolidated().size


@settings(max_examples=60, deadline=None)
@given(
    top=tops.filter(lambda top: not top.offset),
    grouped=st.booleans(),
    shows=st.booleans(),
    thinned=st.booleans(),
    history=st.lists(st.tuples(coming, coming), min_size=1, max_size=6),
)
def test_what_only_grows_keeps_the_first_rows_alone(
    top: Top, grouped: bool, shows: bool, thinned: bool, history: Any
) -> None:
    of = ranked(top.function, top.limit, 0, grouped, shows)
    one, task = stage("monotonic", of), Memory()
    there: Counter[Row] = Counter()
    found: Counter[Row] = Counter()
    for parts in history:
        tables = [given_table(counted(part), grouped) for part in parts]
        if thinned:  # by two tasks, before an exchange
            thin = Thin(None, 0, tables[0].schema, tables[0].schema, of, None)  # type: ignore[arg-type]
            tables = [_as(table, thin.compute(task, table)) for table in tables]
        found.update(collected(one.compute(task, pa.concat_tables(tables))))
        task.commit()
        for part in parts:
            there.update(counted(part))
        assert +found == expected(there, of.top, grouped, shows)
        assert not -found
        kept = task.state.get("tops")
        if kept is not None:  # what is stored is what is given, copies included
            assert int(kept.weights.sum()) == found.total()
            if top.function == ROW_NUMBER:
                count = len({row[0] if grouped else 0 for row in there})
                assert kept.weights.sum() <= top.limit * count


def _as(table: pa.Table, given: Iterator[pa.Table]) -> pa.Table:
    found = [one.rename_columns(table.column_names).cast(table.schema) for one in given]
    return pa.concat_tables([table.schema.empty_table(), *found])


@settings(max_examples=60, deadline=None)
@given(top=tops, grouped=st.booleans(), parts=st.lists(coming, min_size=1, max_size=3))
def test_a_fill_thins_what_it_exchanges_and_stores_all(top: Top, grouped: bool, parts: Any) -> None:
    of = ranked(top.function, top.limit, top.offset, grouped, False)
    whole, thinned = Memory(), Memory()
    one = stage("stack", of, 17)
    tables = [given_table(counted(part), grouped) for part in parts]
    wanted = collected(one.compute(whole, pa.concat_tables(tables)))  # type: ignore[arg-type]
    first = one.levels[0]
    passed = []
    for table in tables:
        thin = Thin(None, 0, table.schema, table.schema, of, first)  # type: ignore[arg-type]
        passed.append(_as(table, thin.compute(thinned, table)))
        if top.function == ROW_NUMBER:
            buckets = 16 * len({row[0] for part in parts for row, _ in part})
            assert sum(passed[-1].column(DIFF).to_pylist()) <= top.depth * buckets
    again = Arranged(first.arranged.collection, first.arranged.key, first.arranged.schema, False)
    later = StackedTop(
        None,  # type: ignore[arg-type]
        0,
        of.schema,
        one.gives,
        of,
        (Level(again, first.modulus, first.bucket), *one.levels[1:]),
    )
    assert collected(later.compute(thinned, pa.concat_tables(passed))) == wanted
    whole.commit()
    thinned.commit()
    assert whole.state.keys() == thinned.state.keys()
    for id, held in whole.state.items():
        other = Weighted(thinned.state[id].rows, -thinned.state[id].weights)
        assert not concatenated([held, other]).consolidated().size


def test_rows_are_thinned_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    from windrow.views.run import top_thinning

    monkeypatch.setattr(top_thinning, "_PIECE", 10)
    of = ranked(ROW_NUMBER, 2, 0, True, False)
    many: Counter[Row] = Counter({(i % 3, float(i), "a"): 1 + i % 2 for i in range(100)})
    table = given_table(many, True)
    thin = Thin(None, 0, table.schema, table.schema, of, None)  # type: ignore[arg-type]
    held, count = thin.gathered(iter(table.to_batches(max_chunksize=7)))
    assert count == 100
    assert held.num_rows <= 17
    assert sum(held.column(DIFF).to_pylist()) <= 30
    found = collected(thin.compute(Memory(), held))  # type: ignore[arg-type]
    assert found == collected(thin.compute(Memory(), table))  # type: ignore[arg-type]
    assert found == expected(many, of.top, True, False)
    gone = given_table(Counter({(1, 0.5, "gone"): -1}), True)
    held, _ = thin.gathered(iter([*table.to_batches(max_chunksize=7), *gone.to_batches()]))
    with pytest.raises(DataError, match=r"append-only.*'s': 'gone'"):
        list(thin.compute(Memory(), held))  # type: ignore[arg-type]


def test_a_change_behind_the_first_rows_of_its_bucket_ends_there() -> None:
    of = ranked(ROW_NUMBER, 2, 0, True, False)
    one, task = stage("stack", of, 200), Memory()
    assert [level.modulus for level in one.levels] == [16, 1]
    many: Counter[Row] = Counter({(1, float(i), "a"): 1 for i in range(400)})
    list(one.compute(task, given_table(many, True)))
    task.commit()
    assert task.state["level16"].size == 400
    assert 2 <= task.state["level1"].size <= 32
    for change, levels in (
        ({(1, 3.0, "a"): -1}, {"level16"}),  # the last by far
        ({(1, 2.5, "a"): 1}, {"level16"}),
        ({(1, 399.0, "a"): -1}, {"level16", "level1"}),  # the very first
    ):
        given_out = collected(one.compute(task, given_table(Counter(change), True)))
        assert task.commit().keys() == levels
        assert bool(given_out) == (len(levels) == 2)


def test_what_does_not_only_grow_is_refused_with_the_row() -> None:
    of = ranked(ROW_NUMBER, 2, 0, False, False)
    one, task = stage("monotonic", of), Memory()
    list(one.compute(task, given_table(Counter({(1, 1.0, "a"): 1}), False)))
    task.commit()
    changes = given_table(Counter({(1, 0.5, "gone"): -1, (1, 2.0, "b"): 1}), False)
    with pytest.raises(DataError, match=r"append-only.*'x': 0\.5, 's': 'gone'}.*Nothing was"):
        list(one.compute(task, changes))
    thin = Thin(None, 0, changes.schema, changes.schema, of, None)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="append-only"):
        list(thin.compute(task, changes))
    assert not task.written
