"""Generations: when one takes the place of another, and what is left of those before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from windrow.online.generations import Generation, GroupNote, change_note, read_note, sweep
from windrow.online.keys import prefix
from windrow.online.served_view import ServedView
from windrow.online.stores.opening import open_store
from windrow.online.stores.store import RecordStore
from windrow.shard.shard import Shard
from windrow.shard.spec import by_columns
from windrow.sources.stream_shard import create_stream, open_stream

VIEW = ServedView("v", "view", "c", ("k",), (pa.int64(),), ("n",), (pa.int64(),))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordStore]:
    opened = open_store(tmp_path / "store", map_size=1 << 26)
    yield opened
    opened.close()


def generation(number: int, position: int, pending: int | None = None) -> Generation:
    found = Generation(number, VIEW, 0, (position,), (position,), loaded=True)
    return found if pending is None else replace(found, pending=(pending,))


@pytest.mark.parametrize(
    ("current", "staged", "served"),
    [
        (generation(1, 10), generation(2, 10), 2),
        (generation(1, 10), generation(2, 9), 1),
        # Some records of the first may have what it is on its way to already.
        (generation(1, 10, pending=20), generation(2, 10), 1),
        (generation(1, 10, pending=20), generation(2, 19), 1),
        (generation(1, 10, pending=20), generation(2, 20), 2),
        (generation(1, 10), generation(2, 10, pending=20), 2),
    ],
)
def test_what_is_served_never_goes_back(
    current: Generation, staged: Generation, served: int
) -> None:
    note = GroupNote(current, staged).promoted()
    assert note.current is not None
    assert note.current.number == served
    assert note.retired == ((1,) if served == 2 else ())
    assert GroupNote.read(note.written()) == note


def test_what_comes_back_of_a_generation_is_removed_by_the_next_sweep(store: RecordStore) -> None:
    def records(*numbers: int) -> None:
        store.load((prefix(number) + b"key", b"record") for number in numbers)

    def serve(number: int) -> None:
        staged = generation(number, 10)
        change_note(store, "v", lambda note: note.stages(staged).promoted())
        records(number)
        sweep(store, "v")

    serve(1)
    serve(2)
    assert store.size().records == 1
    records(1)  # by a follower that had begun before, and was killed
    serve(3)
    assert store.read([], [prefix(n) + b"key" for n in (1, 2, 3)])[1] == [None, None, b"record"]
    note = read_note(store, "v")
    assert (note.retired, note.swept, note.numbers) == ((), (2,), [3])


def test_a_stream_that_cannot_be_read_yet_is_not_there(tmp_path: Path) -> None:
    """Its maker may be interrupted after each of its steps; another one goes on."""
    uri, schema = str(tmp_path / "s"), pa.schema([("k", pa.int64()), ("t", pa.int64())])
    assert open_stream(uri, None) is None
    shard = Shard.create(uri, schema, order=by_columns("t"))
    assert open_stream(uri, None) is None
    shard.append(schema.empty_table(), lower=0, upper=1_000, token="begin")
    assert open_stream(uri, None) is None
    create_stream(uri, schema, "t", None)
    found = open_stream(uri, None)
    assert found is not None
    assert (found.since, found.upper) == (999, 1_000)
    assert found.changes(found.since, found.upper).to_table().num_rows == 0
