"""Many connections at once: each is answered what it asked for, whatever the others ask for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from redis_process import RedisProcess
from served_records import NOW, filled
from serving_fake import Waiting
from serving_worker import Serving, Start

from windrow.online.fetch import Fetcher
from windrow.online.server.limits import Limits
from windrow.online.stores.opening import open_store

PATH = "/v1/features/activity"
ROWS = [(f"user {n}", NOW - m - 1, float(n), "a") for n in range(60) for m in range(n % 4 + 1)]
FEATURES = ["price_count_7d", "price_sum_7d"]


def asked(body: Any, path: str = PATH) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (
        path.encode(),
        len(raw),
        raw,
    )


def of_user(number: int) -> dict[str, Any]:
    return {"keys": [{"user": f"user {number}"}], "at": NOW, "features": FEATURES}


async def answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().split(b"content-length: ")[1].split(b"\r")[0])
    return int(head.split(b" ")[1]), json.loads(await reader.readexactly(size))


async def client(port: int, number: int, rounds: int) -> list[str]:
    """What went wrong for a client that knows what to expect; some send nonsense, too."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    wrong = []
    for turn in range(rounds):
        user = (number * 7 + turn) % 60
        bad = number % 5 == turn % 5
        writer.write(asked(b'{"keys":[{"user":3}]}' if bad else of_user(user)))
        status, found = await answer(reader)
        if bad:
            if status != 400:
                wrong.append(f"{status} for nonsense")
            continue
        count = user % 4 + 1
        expected = {"price_count_7d": [count], "price_sum_7d": [float(user * count)]}
        if status != 200 or found["features"] != expected:
            wrong.append(f"{user}: {status} {found}")
    writer.close()
    return wrong


def assert_everybody_is_answered(port: int, clients: int = 40, rounds: int = 25) -> None:
    async def all_of_them() -> list[list[str]]:
        return await asyncio.gather(*(client(port, n, rounds) for n in range(clients)))

    assert [one for some in asyncio.run(all_of_them()) for one in some] == []


@pytest.fixture(params=["lmdb", "redis"])
def fetcher(request: pytest.FixtureRequest, tmp_path: Path) -> Fetcher:
    if request.param == "lmdb":
        store = open_store(tmp_path / "records")
    else:
        server: RedisProcess = request.getfixturevalue("redis_server")
        store = open_store(server.address, namespace=tmp_path.name, timeout=60)
    filled(store, ROWS)
    return Fetcher(store)


def test_nobody_gets_anothers_answer(fetcher: Fetcher, start: Start) -> None:
    serving = start(fetcher)
    assert_everybody_is_answered(serving.port)
    counted = serving.app.tallies.seen
    assert counted.requests["features\t200"] == counted.fetches["activity"] == 800
    assert counted.errors == {"bad_request": 200}


def test_requests_of_one_connection_in_a_row(fetcher: Fetcher, start: Start) -> None:
    """Sent without waiting, good and bad ones: answered in their order, each as it deserves."""
    serving = start(fetcher)
    wrong = [b"{", b'{"keys":[{"user":1}]}', b'{"keys":[],"at":"x"}']

    async def all_in_a_row() -> list[tuple[int, Any]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        sent = []
        for number in range(60):
            sent.append(asked(of_user(number)))
            sent.append(asked(wrong[number % 3]))
        sent += [asked(b"{")] * 3000  # refused at once, one after the other
        sent.append(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n" + asked(of_user(59)))
        writer.write(b"".join(sent))
        found = [await answer(reader) for _ in range(3122)]
        writer.close()
        return found

    found = asyncio.run(all_in_a_row())
    for number, (status, said) in enumerate(found[:120:2]):
        assert status == 200
        assert said["features"]["price_sum_7d"] == [float(number * (number % 4 + 1))]
    assert {status for status, _ in found[1:120:2]} == {400}
    assert {status for status, _ in found[120:3120]} == {400}
    assert found[3120] == (200, {"status": "live"})
    assert found[3121][1]["features"]["price_count_7d"] == [4]


def test_a_redis_that_goes_and_comes_back(
    start: Start, redis_server: RedisProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It is told that it is gone; once it is back nothing has to be started anew."""
    server = RedisProcess(tmp_path_factory.mktemp("redis"), "--appendonly", "yes")
    try:
        store = open_store(server.address, timeout=0.3)
        filled(store, ROWS)
        serving = start(Fetcher(store))
        for _ in range(2):
            assert_everybody_is_answered(serving.port, 10, 10)
            server.kill()
            status, code, message = serving.refused(PATH, of_user(3))
            assert (status, code) == (503, "unavailable")
            assert str(server.port) not in message
            server.start()
    finally:
        server.kill()
    store.close()


def test_bodies_in_pieces(serving: Serving) -> None:
    body = b'{"keys":[{"user_id":5}],"features":["price_avg_1d"]}'
    head = b"POST /v1/features/activity HTTP/1.1\r\nhost: x\r\n"
    chunked = head + b"transfer-encoding: chunked\r\n\r\n"
    chunked += b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    expecting = head + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body)
    with serving.connect() as connection:
        for number in range(0, len(chunked), 7):
            connection.sendall(chunked[number : number + 7])
        assert b'"price_avg_1d":[8.0]' in connection.recv(65_536)
        connection.sendall(expecting)
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert b'"price_avg_1d":[8.0]' in connection.recv(65_536)


@pytest.mark.parametrize(
    "path",
    ["/v1/features/act%69vity", "/v1/features/activity?x=1", "http://h/v1/features/activity"],
)
def test_paths_in_other_words(serving: Serving, path: str) -> None:
    body = {"keys": [{"user_id": 5}], "features": ["price_avg_1d"]}
    with serving.connect() as connection:
        connection.sendall(asked(body, path))
        assert b'"price_avg_1d":[8.0]' in connection.recv(65_536)


def test_the_last_answer_says_so(start: Start) -> None:
    serving = start()
    status, headers, _ = serving.request("POST", PATH, {"keys": []}, connection="close")
    assert (status, headers["connection"]) == (200, "close")
    serving.app.closing = True
    status, headers, _ = serving.request("POST", PATH, {"keys": []})
    assert (status, headers["connection"]) == (200, "close")
    with serving.connect() as connection:
        connection.sendall(asked({"keys": []}).replace(b"1.1", b"1.0"))
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
        assert b"connection: close" in b"".join(parts)


def test_requests_that_wait_together_are_counted_one_by_one(start: Start) -> None:
    """Of eight that come at once, as many are refused as there is no room for."""
    serving = start(Waiting(), Limits(timeout=30, threads=1, waiting=4))
    serving.post(PATH, {"keys": [{"user_id": 0}]})  # its description is known now

    async def at_once() -> list[int]:
        pairs = [await asyncio.open_connection("127.0.0.1", serving.port) for _ in range(8)]
        for _, writer in pairs:
            writer.write(asked({"keys": [{"user_id": 100}]}))
        found = [(await answer(reader))[0] for reader, _ in pairs]
        for _, writer in pairs:
            writer.close()
        return found

    found = asyncio.run(at_once())
    assert set(found) <= {200, 503}
    assert found.count(200) >= 5
