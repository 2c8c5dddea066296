"""Requests that are fetched together are answered as each by itself; none has another's data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis_process import RedisProcess
from served_records import HOUR, NOW, filled, joined

from windrow.errors import DataError, NotServedError, RequestError, StaleError
from windrow.online.fetch import Fetcher
from windrow.online.fetched import Fetched, Outcome, Request
from windrow.online.generations import note_name
from windrow.online.keys import key_bytes
from windrow.online.stores.opening import open_store
from windrow.online.stores.store import RecordStore

USERS = [f"user {n}" for n in range(12)]
ROWS = [
    (user, NOW - (n * 37 + m * 911) * 60_000, n * 100.0 + m, "xyz"[(n + m) % 3])
    for n, user in enumerate(USERS)
    for m in range(n)  # the first has none
]
_numbers = count()


@pytest.fixture(scope="module", params=["lmdb", "redis"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RecordStore]:
    """With records of which one is damaged."""
    if request.param == "lmdb":
        made = open_store(tmp_path_factory.mktemp("store"), map_size=1 << 30)
    else:
        server: RedisProcess = request.getfixturevalue("redis_server")
        made = open_store(server.address, namespace=f"together{next(_numbers)}", timeout=60)
    filled(made, ROWS)
    joined(made)
    damage(made, "user 7")
    yield made
    made.close()


def damage(store: RecordStore, user: str) -> None:
    store.update([key_of(user)], lambda found: [found[0][:-1] + b"!"])  # type: ignore[index]


def key_of(user: str, number: int = 1) -> bytes:
    (key,) = key_bytes(number, pa.table({"k0": [user]}))
    return key


def told(outcome: Outcome) -> Any:
    """What can be compared of an outcome."""
    if isinstance(outcome, Exception):
        return type(outcome), str(outcome)
    return (
        outcome.name,
        outcome.at,
        outcome.names,
        outcome.keys,
        outcome.columns,
        outcome.statuses,
        outcome.fresh_at,
        outcome.version,
    )


def assert_same(got: Outcome, expected: Outcome) -> None:
    assert told(got) == told(expected)


def alone(fetcher: Fetcher, request: Request) -> Outcome:
    try:
        return fetcher.fetch(request.name, request.keys, at=request.at, features=request.features)
    except Exception as error:
        return error


users = st.sampled_from([*USERS, "nobody", None])
times = st.sampled_from([None, NOW, NOW + 1, NOW + HOUR // 2, NOW + 30 * HOUR, NOW - 1])
of_group = st.builds(
    Request,
    st.just("activity"),
    st.lists(
        st.one_of(
            st.builds(lambda user: {"user": user}, users),
            st.sampled_from([{"user": 7}, {"name": "ann"}]),
        ),
        max_size=4,
    ),
    times,
    st.sampled_from([None, None, ["price_sum_7d"], ["page_histogram_7d", "price_count_1h"], ["x"]]),
)
of_join = st.builds(
    Request,
    st.just("training"),
    st.lists(st.builds(lambda a, b: {"buyer": a, "seller": b}, users, users), max_size=3),
    times,
    st.sampled_from([None, ["seller_price_sum_7d"], []]),
)
of_nothing = st.just(Request("nothing", [{"user": "ann"}]))


@settings(max_examples=150)
@given(requests=st.lists(st.one_of(of_group, of_group, of_join, of_nothing), max_size=12))
def test_together_is_as_alone(store: RecordStore, requests: list[Request]) -> None:
    """Wrong keys, names, times and damaged records among them are the business of their own."""
    fetcher = Fetcher(store, now=lambda: NOW + 2)
    by_itself = [alone(fetcher, request) for request in requests]
    for expected, got in zip(by_itself, fetcher.fetch_all(requests), strict=True):
        assert_same(got, expected)


def test_every_kind_of_error_is_of_its_own_request(store: RecordStore) -> None:
    good = [Request("activity", [{"user": user}], NOW) for user in USERS if user != "user 7"]
    bad = {
        DataError: Request("activity", [{"user": "user 3"}, {"user": "user 7"}], NOW),
        RequestError: Request("activity", [{"user": 3}], NOW),
        NotServedError: Request("nothing", [{"user": "user 3"}], NOW),
    }
    early = Request("activity", [{"user": "user 3"}], NOW - 1)
    fetcher = Fetcher(store)
    found = fetcher.fetch_all([*good[:4], *bad.values(), *good[4:], early])
    errors = [one for one in found if isinstance(one, Exception)]
    assert [type(error) for error in errors] == [*bad, RequestError]
    assert "user 7" in str(errors[0])
    assert "only from" in str(errors[3])
    answers = [one for one in found if isinstance(one, Fetched)]
    for request, answer in zip(good, answers, strict=True):
        assert answer.keys == request.keys
        assert_same(answer, alone(fetcher, request))


def test_stale_features_are_refused_to_those_who_ask_so_late(tmp_path: Path) -> None:
    store = open_store(tmp_path / "records")
    filled(store, ROWS, refuses_stale=True)
    asked = [Request("activity", [{"user": "user 5"}], NOW + hours * HOUR) for hours in (0, 9, 1)]
    found = Fetcher(store).fetch_all(asked)
    assert [isinstance(one, StaleError) for one in found] == [False, True, False]


def test_a_generation_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    """Records of the one before are never evaluated as if they were of the new one."""
    store = open_store(tmp_path / "records")
    filled(store, [("ann", NOW - 1, 1.0, "a")])

    class Replacing:
        waits, address, notes, reads = False, store.address, store.notes, 0

        def read(self, notes: Any, keys: Any) -> Any:
            self.reads += 1
            if self.reads == 4:  # the group was opened, and answered once
                filled(store, [("ann", NOW - 1, 2.0, "b")], number=2)
            return store.read(notes, keys)

    replacing = Replacing()
    fetcher = Fetcher(replacing)  # type: ignore[arg-type]
    asked = [Request("activity", [{"user": "ann"}], NOW, ["price_sum_7d"])] * 3
    assert [one.columns for one in fetcher.fetch_all(asked)] == [[[1.0]]] * 3  # type: ignore[union-attr]
    assert [one.columns for one in fetcher.fetch_all(asked)] == [[[2.0]]] * 3  # type: ignore[union-attr]
    store.change_note(note_name("activity"), lambda _: None)
    assert all(isinstance(one, NotServedError) for one in fetcher.fetch_all(asked))


# On an event loop


async def soon(fetcher: Fetcher, requests: list[Request]) -> list[Outcome] | None:
    """As a server does it: None if it has to be done in a thread."""
    future: asyncio.Future[list[Outcome] | None] = asyncio.get_running_loop().create_future()
    if not fetcher.fetch_soon(requests, future.set_result):
        return None
    return await future


async def until_connected(fetcher: Fetcher, requests: list[Request]) -> list[Outcome]:
    """The connection is made in the background, once somebody asks."""
    while True:
        found = await soon(fetcher, requests)
        if found is not None:
            return found
        await asyncio.to_thread(fetcher.fetch_all, requests)


def of_redis(server: RedisProcess) -> RecordStore:
    made = open_store(server.address, namespace=f"soon{next(_numbers)}", timeout=60)
    filled(made, ROWS)
    joined(made)
    return made


def test_a_store_on_this_machine_is_read_at_once(tmp_path: Path) -> None:
    store = open_store(tmp_path / "records")
    filled(store, ROWS)
    fetcher = Fetcher(store)
    assert not fetcher.waits
    fetcher.fetch("activity", [{"user": "user 1"}], at=NOW)
    asked = [Request("activity", [{"user": "user 1"}], NOW)]
    assert asyncio.run(soon(fetcher, asked)) is None


def test_without_waiting_is_as_with_waiting(redis_server: RedisProcess) -> None:
    store = of_redis(redis_server)
    fetcher = Fetcher(store, now=lambda: NOW + 2)
    assert fetcher.waits
    batches = [
        [Request("activity", [{"user": USERS[(n + m) % 12]}], NOW + m) for m in range(n % 5 + 1)]
        + [Request("training", [{"buyer": USERS[n % 12], "seller": None}])]
        for n in range(200)
    ]

    async def all_at_once() -> list[list[Outcome]]:
        await until_connected(fetcher, batches[0])
        return [one or [] for one in await asyncio.gather(*(soon(fetcher, b) for b in batches))]

    for batch, found in zip(batches, asyncio.run(all_at_once()), strict=True):
        for got, expected in zip(found, fetcher.fetch_all(batch), strict=True):
            assert_same(got, expected)
    # A loop of its own has a connection of its own.
    assert asyncio.run(until_connected(fetcher, batches[3])) is not None
    store.close()


def test_what_is_not_known_yet_is_not_asked_for_on_the_loop(redis_server: RedisProcess) -> None:
    fetcher = Fetcher(of_redis(redis_server))

    async def first() -> None:
        assert not fetcher.fetch_soon([Request("activity", [{"user": "user 1"}], NOW)], pytest.fail)

    asyncio.run(first())


def test_a_connection_that_is_lost_is_told(redis_server: RedisProcess) -> None:
    """And made again; meanwhile it is the business of threads."""
    store = of_redis(redis_server)
    fetcher = Fetcher(store)
    asked = [Request("activity", [{"user": "user 4"}], NOW)]

    async def lose() -> None:
        for _ in range(3):
            before = await until_connected(fetcher, asked)
            with redis_server.client() as client:
                client.client_kill_filter(_type="normal", skipme=True)
            lost = await asyncio.gather(*(soon(fetcher, asked) for _ in range(5)))
            assert all(one is None or told(one[0]) == told(before[0]) for one in lost)
            assert lost[-1] is None

    asyncio.run(lose())
    store.close()


def test_a_server_that_says_nothing_is_given_up(
    redis_server: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = of_redis(redis_server)
    fetcher = Fetcher(store)
    asked = [Request("activity", [{"user": "user 4"}], NOW)]
    later: list[Callable[[], Any]] = []

    async def silence() -> list[Outcome] | None:
        await until_connected(fetcher, asked)
        pipeline = store._pipeline  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "_send", lambda command: None)  # it never arrives
            waiting = asyncio.ensure_future(soon(fetcher, asked))
            await asyncio.sleep(0)
            later.append(lambda: pipeline._look(pipeline._answers))
            later[0]()  # as the timer does
            return await waiting

    assert asyncio.run(silence()) is None
    store.close()


def test_an_error_of_the_server_is_left_to_who_can_say_it(redis_server: RedisProcess) -> None:
    store = of_redis(redis_server)
    fetcher = Fetcher(store)
    asked = [Request("activity", [{"user": "user 4"}], NOW)]
    fetcher.fetch_all(asked)

    async def wrong() -> list[Outcome] | None:
        await until_connected(fetcher, asked)
        pipeline = store._pipeline  # type: ignore[attr-defined]
        found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        pipeline.read([], b"", [], found.set_result)  # MGET without a key
        assert await found is None
        return await soon(fetcher, asked)  # and the connection is as good as before

    assert asyncio.run(wrong()) is not None
    store.close()
