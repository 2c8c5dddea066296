"""Features that are served while streams, uploads, servers and Redis are killed: none is wrong.

    python tests/campaigns/online_kills.py --kills 100 [--seed 0] [--redis]

A driver takes in a stream and brings records up to it, or uploads a new generation of them;
`windrow serve` answers over HTTP all the while; records are in LMDB or, with `--redis`, in a Redis
of the campaign's own. One of them is killed, and started again. Whatever is answered for a time
before which every row was taken in has to be what plain loops give, at every moment, and so has
everything in the end. A server without its store may say that it is not there, and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "campaigns"), str(TESTS / "online")]

from drivers import Driver, Drivers  # noqa: E402
from redis_process import RedisProcess  # noqa: E402
from stream_kills import Sender, check  # noqa: E402

from feature_oracle import aggregate  # noqa: E402

KEYS = range(6)  # of one there is no row
SECOND = 1_000
MOST_SECONDS = 2.0  # from what a driver is told to a kill
READY_SECONDS = 120
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


def expected(sent: Counter[tuple[int, int, int]], key: int, at: int) -> dict[str, Any]:
    """The features of a key at a time, by plain loops."""
    before = [(t, n) for (k, n, t), copies in sent.items() for _ in range(copies) if k == key < 5]
    before = [(t, n) for t, n in before if t < at]
    second = [(t, n) for t, n in before if t >= at - SECOND]
    found = {
        "n_count": aggregate("count", before, None),
        "n_sum_1s": aggregate("sum", second, None),
        "n_last_5": aggregate("last_k", before, 5),
        "n_histogram": aggregate("histogram", before, None),
    }
    return json.loads(json.dumps(found))  # keys of maps are texts


class Server:
    """`windrow serve` in a process of its own, which can be killed and started again."""

    def __init__(self, folder: Path, root: Path, online: str | None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self._folder = folder / "project"
        self._folder.mkdir()
        settings = [f"root = {json.dumps(str(root))}", "definitions = ['features.py']"]
        settings += [f"online = {json.dumps(online)}"] if online else []
        (self._folder / "windrow.toml").write_text("\n".join(settings))
        (self._folder / "features.py").write_text("")
        self._log = (folder / "server.log").open("ab")
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "windrow.cli", "serve", "--port", str(self.port)]
        self._process = subprocess.Popen(
            command, cwd=self._folder, stdout=self._log, stderr=self._log, start_new_session=True
        )
        end = time.monotonic() + READY_SECONDS
        while self._ask("GET", "/health/ready") != 200:
            assert self._process.poll() is None, Path(self._log.name).read_text()[-3000:]
            assert time.monotonic() < end, "a server is not ready"
            time.sleep(0.05)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _ask(self, method: str, path: str) -> int | None:
        try:
            return self._send(method, path, None)[0]
        except OSError:
            return None

    def _send(self, method: str, path: str, body: str | None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def features(self, at: int) -> dict[int, dict[str, Any]] | str:
        """The features of all keys at a time; or the code of a refusal."""
        asked = {"keys": [{"k": key} for key in KEYS], "at": at}
        status, body = self._send("POST", "/v1/features/activity", json.dumps(asked))
        answer = json.loads(body)
        if status != 200:
            return str(answer["error"]["code"])
        columns = answer["features"]
        return {
            key: {name: values[place] for name, values in columns.items()}
            for place, key in enumerate(KEYS)
        }


class Campaign:
    """What is at work, and what is known of it."""

    def __init__(
        self, place: Path, pick: random.Random, drivers: Drivers, redis: RedisProcess | None
    ) -> None:
        self.pick, self.redis, self._drivers = pick, redis, drivers
        self.sender = Sender(place, pick, None)
        self.root = place / "state"
        self.counts: Counter[str] = Counter()
        self.settled = 0  # rows up to this time are all in
        self._from = 0  # the latest time of which an upload may be
        self.driver = drivers.start()
        self.told(self.driver, do="upload", as_of=0)
        online = None if redis is None else redis.address
        self.server = Server(place, self.root, online)

    @staticmethod
    def told(driver: Driver, **request: Any) -> None:
        """Let a driver do something that has to succeed."""
        driver.send(**request)
        answer = driver.answer()
        assert answer == {}, answer

    def ask(self, *, excused: bool = False) -> None:
        """Ask for a time before which everything is in. Without its store, a server may refuse."""
        at = self.pick.randrange(self._from, self.settled + 1) + 1
        found = self.server.features(at)
        self.counts["asked"] += 1
        if isinstance(found, str):
            assert excused, found
            assert found in ("unavailable", "not_ready", "too_slow")
            self.counts["refused"] += 1
            return
        for key in KEYS:
            wanted = expected(self.sender.sent, key, at)
            assert found[key] == wanted, f"key {key} at {at}: {found[key]} and not {wanted}"
        self.counts["answered"] += 1

    def kill_one(self) -> None:
        """Begin something, and kill what is at work on it, or beside it, meanwhile."""
        pick = self.pick
        for _ in range(pick.randrange(1, 4)):
            self.sender.send()
        number, request = self.sender.number, self._request()
        victims = ["driver", "driver", "server"] + ["redis"] * (self.redis is not None)
        victim = pick.choice(victims)
        end = time.monotonic() + pick.uniform(0, MOST_SECONDS)
        self.driver.send(**request)
        while time.monotonic() < end:
            self.ask()
        self._kill(victim)
        self.counts[f"{victim}_kills"] += 1
        self.counts[f"{request['do']}_disturbed"] += 1
        if victim == "driver":
            self.driver = self._drivers.start()
        else:
            self._finish(request, victim, number)
        for _ in range(3):
            self.ask()

    def _request(self) -> dict[str, Any]:
        if self.pick.random() < 0.6:
            return {"do": "stream"}
        self._from = self.pick.randrange(self._from, self.settled + 1)
        return {"do": "upload", "as_of": self._from}

    def _kill(self, victim: str) -> None:
        if victim == "driver":
            assert self.driver.kill("driver", self.pick)
            with contextlib.suppress(queue.Empty):
                while self.driver.answer() is not None:  # it was done already
                    pass
            return
        if victim == "redis":
            assert self.redis is not None
            self.redis.kill()
            if self.pick.random() < 0.5:
                self.ask(excused=True)
            self.redis.start()
            self.ask(excused=True)  # its connections are those of the one before
            return
        self.server.kill()
        self.server.start()

    def _finish(self, request: dict[str, Any], victim: str, number: int) -> None:
        """What the driver says, which was not killed."""
        answer = self.driver.answer()
        assert answer is not None, "the driver has ended"
        if "error" in answer:
            assert victim == "redis", answer["trace"]
            assert answer["ours"], answer["trace"]
            self.counts["told"] += 1
        elif request["do"] == "stream":
            self.settled = number

    def finish(self) -> Counter[str]:
        """All that was sent is taken in once; then everything that can be asked is right."""
        for request in ({"do": "stream"}, {"do": "upload", "as_of": self._from}):
            self.told(self.driver, **request)
            self.settled = self.sender.number
            for _ in range(20):
                self.ask()
        check(self.root, self.sender)
        self.counts["rows"] = sum(self.sender.sent.values())
        return self.counts


def campaign(place: Path, kills: int, seed: int, *, redis: bool) -> Counter[str]:
    """Kill so often; what happened, counted. Raises AssertionError on a wrong value."""
    (place / "redis").mkdir(parents=True)
    child = Path(__file__).with_name("online_child.py")
    with contextlib.ExitStack() as ends:
        store = RedisProcess(place / "redis", *DURABLE) if redis else None
        if store is not None:
            ends.callback(store.kill)
        settings = {
            "folder": str(place / "in"),
            "servers": None,
            "online": None if store is None else store.address,
        }
        drivers = Drivers(child, place / "log", str(place / "state"), json.dumps(settings))
        ends.enter_context(drivers)
        at_work = Campaign(place, random.Random(seed), drivers, store)
        ends.callback(at_work.server.kill)
        for _ in range(kills):
            at_work.kill_one()
        return at_work.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--redis", action="store_true", help="records in Redis, and not in LMDB")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-kills-") as folder:
        counts = campaign(Path(folder), given.kills, given.seed, redis=given.redis)
    print(json.dumps({"seed": given.seed, "redis": given.redis, **counts}))


if __name__ == "__main__":
    main()
