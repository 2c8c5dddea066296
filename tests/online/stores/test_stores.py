"""What every store promises, of both kinds: byte for byte, one moment, one step."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.errors import OptionError
from windrow.online.stores.store import RecordStore

NewStore = Callable[[], RecordStore]

GENERATIONS = [b"generati", b"generato", b"*?[a]\\^-", bytes(8), b"\xff" * 8]
keys = st.builds(
    lambda generation, rest: generation + rest,
    st.sampled_from(GENERATIONS),
    st.one_of(st.binary(max_size=2), st.sampled_from([b"*", b"\xff" * 392, b"\0", b"k"])),
)
values = st.one_of(st.binary(max_size=8), st.binary(min_size=3000, max_size=9000))
names = st.one_of(st.sampled_from(["served", "served/é", "a:b"]), st.text(min_size=1, max_size=9))
prefixes = st.one_of(
    st.sampled_from([*GENERATIONS, b"", b"gener"]), keys, st.binary(min_size=1, max_size=2)
)
operations = st.one_of(
    st.tuples(st.just("load"), st.lists(st.tuples(keys, values), max_size=6)),
    st.tuples(
        st.just("update"),
        st.lists(keys, unique=True, max_size=6),
        st.lists(st.one_of(st.none(), values), min_size=6, max_size=6),
    ),
    st.tuples(st.just("note"), names, st.one_of(st.none(), values)),
    st.tuples(st.just("remove"), prefixes),
    st.tuples(st.just("reopen")),
)


@settings(max_examples=100)
@given(done=st.lists(operations, max_size=12))
def test_it_holds_what_a_dictionary_would(new_store: NewStore, done: list[tuple]) -> None:
    store = new_store()
    records: dict[bytes, bytes] = {}
    notes: dict[str, bytes] = {}
    for kind, *arguments in done:
        if kind == "load":
            store.load(iter(arguments[0]))
            records.update(arguments[0])
        elif kind == "update":
            update(store, records, *arguments)
        elif kind == "note":
            name, value = arguments
            seen: list[bytes | None] = []
            store.change_note(name, lambda found, s=seen, v=value: (s.append(found), v)[1])
            assert seen == [notes.get(name)]
            put(notes, name, value)
        elif kind == "remove":
            gone = [key for key in records if key.startswith(arguments[0])]
            assert store.remove(arguments[0]) == len(gone)
            for key in gone:
                del records[key]
        else:
            store.close()
        check(store, records, notes)
    store.remove(b"")
    check(store, {}, notes)
    store.close()


def put(model: dict, key: object, value: bytes | None) -> None:
    if value is None:
        model.pop(key, None)
    else:
        model[key] = value


def update(
    store: RecordStore, records: dict[bytes, bytes], wanted: list[bytes], made: list[bytes | None]
) -> None:
    def fold(found: object) -> list[bytes | None]:
        assert list(found) == [records.get(key) for key in wanted]
        return made[: len(wanted)]

    store.update(wanted, fold)
    for key, value in zip(wanted, made, strict=False):
        put(records, key, value)


def check(store: RecordStore, records: dict[bytes, bytes], notes: dict[str, bytes]) -> None:
    asked = [*records, b"absent-key", b"generati", *GENERATIONS]
    named = [*notes, "absent", "served"]
    assert store.read(named, asked) == ([*map(notes.get, named)], [*map(records.get, asked)])
    assert store.read([], []) == ([], [])
    assert sorted(store.notes()) == sorted(notes)
    assert sorted(store.notes("served")) == sorted(n for n in notes if n.startswith("served"))
    size = store.size()
    assert size.records >= len(records)
    assert size.bytes >= 0


def test_many_records_in_any_order(store: RecordStore) -> None:
    held = {b"12345678%d" % (i * 7919 % 25_000): b"%d" % i * (i % 50) for i in range(25_000)}
    store.load(held.items())
    assert store.read([], list(held))[1] == list(held.values())
    asked = list(held)
    store.update(asked, lambda found: [value + b"!" if value else None for value in found])
    expected = [value + b"!" if value else None for value in held.values()]
    assert store.read([], asked)[1] == expected
    assert store.remove(b"1234567") == sum(value is not None for value in expected)
    assert set(store.read([], asked)[1]) == {None}


def test_an_update_that_makes_no_sense_changes_nothing(store: RecordStore) -> None:
    key = b"12345678k"
    store.load([(key, b"v")])
    with pytest.raises(OptionError, match="returned 2"):
        store.update([key], lambda found: [b"a", b"b"])
    with pytest.raises(OptionError, match="twice"):
        store.update([key, key], lambda found: [b"a", b"b"])

    def fail(found: object) -> list[bytes]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.update([key], fail)
    with pytest.raises(ZeroDivisionError):
        store.change_note("n", fail)
    assert store.read(["n"], [key]) == ([None], [b"v"])


READ = """
import pickle, sys
store = pickle.loads(sys.stdin.buffer.read())
assert store.read(["n"], [b"12345678k"]) == ([b"note"], [b""]), store
store.update([b"12345678k"], lambda found: [b"from another process"])
"""


def test_a_store_goes_into_another_process(store: RecordStore) -> None:
    store.load([(b"12345678k", b"")])
    store.change_note("n", lambda _: b"note")
    subprocess.run([sys.executable, "-c", READ], input=pickle.dumps(store), check=True)
    assert store.read([], [b"12345678k"]) == ([], [b"from another process"])
    copy = pickle.loads(pickle.dumps(store))
    assert (repr(copy), copy.address, copy.is_local) == (repr(store), store.address, True)


def test_a_fork_has_connections_of_its_own(store: RecordStore) -> None:
    """While another thread reads: neither process may disturb the other."""
    key = b"12345678k"
    store.load([(key, bytes(8))])
    context = multiprocessing.get_context("fork")
    children = []
    for _ in range(4):
        store.read([], [key])
        child = context.Process(target=_add, args=(store, key, 25))
        child.start()
        children.append(child)
        _add(store, key, 5)
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert store.read([], [key])[1] == [(4 * 30).to_bytes(8, "big")]


def _add(store: RecordStore, key: bytes, times: int) -> None:
    def more(found: object) -> list[bytes]:
        return [(int.from_bytes(found[0], "big") + 1).to_bytes(8, "big")]

    for _ in range(times):
        store.update([key], more)
        assert store.read([], [key])[1][0] is not None
    assert os.getpid()
