"""Servers in processes of their own: several workers, kills, and an end that loses no request."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from windrow.errors import OptionError
from windrow.online.server.listening import address_of, is_loopback, listen
from windrow.online.server.settings import Settings

CHILD = Path(__file__).parent / "serving_child.py"
BODY = b'{"keys":[{"user_id":1}],"features":["price_avg_1d"]}'
PATH = "/v1/features/activity"

Started = tuple["subprocess.Popen[str]", int]


@pytest.fixture
def processes() -> Iterator[Callable[..., Started]]:
    """Starts servers, and sees to it that they end."""
    with contextlib.ExitStack() as stack:

        def start(workers: int, opening: str = "fake") -> Started:
            command = [sys.executable, str(CHILD), str(workers), opening]
            process = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, process.communicate()[1]
            return process, int(address.rsplit(":", 1)[1])

        yield start


def ask(connection: http.client.HTTPConnection) -> tuple[int, bool]:
    """The status, and whether the server says it was the last answer."""
    connection.request("POST", PATH, BODY)
    answer = connection.getresponse()
    body = answer.read()
    assert json.loads(body)["features"] == {"price_avg_1d": [4.0]}
    return answer.status, answer.getheader("connection") == "close"


class Client(threading.Thread):
    """Asks again and again, until the server refuses to be connected to."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port, self.answered, self.failed = port, 0, ""
        self.busy = threading.Event()

    def run(self) -> None:
        while not self.failed:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                connection.connect()
            except OSError:
                return
            first = True
            try:
                while True:
                    _, last = ask(connection)
                    first = False
                    self.answered += 1
                    self.busy.set()
                    if last:
                        break
            except (OSError, http.client.HTTPException) as error:
                # One that was never accepted was not failed by the server.
                if not first or not isinstance(error, ConnectionResetError):
                    self.failed = repr(error)
            finally:
                connection.close()
                self.busy.set()


@pytest.mark.parametrize("workers", [1, 2])
def test_no_request_fails_while_it_stops(processes: Callable[..., Started], workers: int) -> None:
    process, port = processes(workers)
    clients = [Client(port) for _ in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        assert client.busy.wait(60)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    for client in clients:
        client.join(60)
    assert [client.failed for client in clients] == [""] * 8
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert all(client.answered for client in clients)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_idle_connections_do_not_keep_it(
    processes: Callable[..., Started], workers: int, number: signal.Signals
) -> None:
    process, port = processes(workers)
    idle = socket.create_connection(("127.0.0.1", port))
    process.send_signal(number)
    assert process.wait(60) == 0
    assert idle.recv(100) == b""
    idle.close()


def test_a_killed_worker_is_started_again(processes: Callable[..., Started]) -> None:
    process, port = processes(2)

    def workers() -> list[psutil.Process]:
        found = psutil.Process(process.pid).children()
        return [one for one in found if "spawn_main" in " ".join(one.cmdline())]

    before = {one.pid for one in workers()}
    assert len(before) == 2
    killed = min(before)
    os.kill(killed, signal.SIGKILL)
    assert process.stderr is not None
    line = json.loads(process.stderr.readline())
    assert (line["event"], line["exit_code"]) == ("worker", -signal.SIGKILL)
    for _ in range(20):  # whichever of the two has the connection
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        assert ask(connection)[0] == 200
        connection.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_workers_end_with_their_parent(processes: Callable[..., Started]) -> None:
    process, port = processes(2)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    with pytest.raises(OSError):  # noqa: PT011 (refused, or reset)
        socket.create_connection(("127.0.0.1", port)).recv(1)


def test_metrics_are_those_of_all_workers(processes: Callable[..., Started]) -> None:
    process, port = processes(2)
    asked = 40
    for _ in range(asked):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        ask(connection)
        connection.close()
    line = f'windrow_requests_total{{route="features",status="200"}} {asked}.0'
    while True:  # workers tell each other once a second; the test's own timeout bounds it
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        if line in text:
            break
    assert 'windrow_worker_memory_bytes{worker="1"}' in text
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_one_that_cannot_start_says_so(workers: str, tmp_path: Path) -> None:
    command = [sys.executable, str(CHILD), workers, "fake", str(tmp_path / "none")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode != 0
    assert "tokens" in ended.stderr
    assert ended.stdout == ""


def test_an_address_is_taken_once() -> None:
    for count in (1, 2):
        first = listen("127.0.0.1", 0, count)
        port = first[0].getsockname()[1]
        assert {one.getsockname()[1] for one in first} == {port}
        assert address_of(first[0]) == f"http://127.0.0.1:{port}"
        for again in (1, 2):
            with pytest.raises(OptionError, match=f"port {port}"):
                listen("127.0.0.1", port, again)
        for one in first:
            one.close()
    with pytest.raises(OptionError, match="cannot listen"):
        listen("256.0.0.1", 0, 1)


def test_settings_are_checked() -> None:
    with pytest.raises(OptionError, match="port"):
        Settings(port=70_000)
    with pytest.raises(OptionError, match="workers"):
        Settings(workers=0)
    assert is_loopback("127.0.0.1")
    assert not is_loopback("0.0.0.0")
