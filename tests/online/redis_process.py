"""A Redis server on loopback, really started, in a folder of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


class RedisProcess:
    """A server that can be killed and started again, on the same port and with the same files."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.settings = settings
        self.port = _free_port()
        self.start()

    @property
    def address(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        program = shutil.which("redis-server")
        assert program is not None
        command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        folder = ["--dir", str(self.folder), "--unixsocket", str(self.folder / "redis.sock")]
        log = ["--logfile", str(self.folder / "log")]
        self._process = subprocess.Popen([*command, *folder, *log, *self.settings])
        with self.client() as client:
            while True:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                try:
                    client.ping()
                    return
                except redis.AuthenticationError:
                    return
                except (redis.ConnectionError, redis.TimeoutError):
                    pass

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


StartRedis = Callable[..., RedisProcess]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
