"""Drivers that are killed by the hundred, each ready in a moment.

    campaign ─┬─ server ── driver, a fork; one at a time
              └─ JVM ── daemon ── tasks

The server imports everything and loads the compiled kernels, once. A driver works with a JVM that
is there already, and warm: Spark takes ten times as long to start as a statement takes to run. What
a driver that was killed left under way in the JVM is ended before the next one begins. Only when
the JVM itself was killed is another one started.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "cluster"), str(TESTS / "shard")]

import psutil  # noqa: E402
import pyspark  # noqa: E402
from cluster_processes import _end_with_parent, runs, wait_for  # noqa: E402
from crash_child import warm_up  # noqa: E402

from jvm import JAVA_OPTIONS  # noqa: E402

DEADLINE_SECONDS = 240
Request = dict[str, Any]
Work = Callable[[Any, Iterator[Request]], Iterator[Request]]

# --- the campaign's side ------------------------------------------------------------------------


class Jvm:
    """A JVM that waits for drivers; it ends when its standard input does."""

    def __init__(self, log: IO[bytes]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            said = Path(folder, "gateway")
            self.process = subprocess.Popen(
                [f"{os.path.dirname(pyspark.__file__)}/bin/spark-submit", "pyspark-shell"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
                    "_PYSPARK_DRIVER_CONN_INFO_PATH": str(said),
                },
                start_new_session=True,  # so that what it started is known when it is dead
            )
            wait_for(said.exists, "the JVM")
            found = said.read_bytes()  # the port, the length of a secret, and the secret
        self.gateway = int.from_bytes(found[:4], "big"), found[8:].decode()
        self.wounded = False  # one of its tasks was killed

    @property
    def runs(self) -> bool:
        return self.process.poll() is None and runs(self.process.pid)

    def daemons(self) -> list[psutil.Process]:
        """The processes that fork tasks."""
        return _children(self.process.pid)

    def tasks(self) -> list[psutil.Process]:
        """Those that a daemon has forked, be it still there or not."""
        known = {self.process.pid, *(daemon.pid for daemon in self.daemons())}
        found = []
        for pid in psutil.pids():
            if pid not in known and self._started(pid) and runs(pid):
                with contextlib.suppress(psutil.Error):
                    found.append(psutil.Process(pid))
        return found

    def end_tasks(self) -> None:
        def gone() -> bool:
            found = self.tasks()
            for task in found:
                with contextlib.suppress(psutil.Error):
                    task.kill()
            return not found

        wait_for(gone, "the end of tasks")

    def end(self) -> None:
        """End it and all that it started."""

        def gone() -> bool:
            found = [pid for pid in psutil.pids() if self._started(pid) and runs(pid)]
            for pid in found:
                with contextlib.suppress(psutil.Error):
                    psutil.Process(pid).kill()
            return not found

        wait_for(gone, "the end of a JVM")
        self.process.wait()

    def _started(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return os.getsid(pid) == self.process.pid
        return False


def _children(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [process for process in psutil.Process(pid).children() if runs(process.pid)]
    return []


class Driver:
    """A driver that answers requests, one at a time."""

    def __init__(self, jvm: Jvm, connection: socket.socket) -> None:
        self.jvm, self._connection = jvm, connection
        self._lines = connection.makefile("r")
        self.pid = int(json.loads(self._lines.readline())["pid"])
        self.answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(ValueError, OSError):  # closed; or a line that was cut short
            for line in self._lines:
                self.answers.put(json.loads(line))
        self.answers.put(None)  # it has ended

    def send(self, **request: Any) -> None:
        with contextlib.suppress(OSError):  # then its answer is that it has ended
            self._connection.sendall(f"{json.dumps(request)}\n".encode())

    def answer(self, seconds: float = DEADLINE_SECONDS) -> dict[str, Any] | None:
        """What it said; None if it has ended. Raises queue.Empty after some time."""
        return self.answers.get(timeout=max(seconds, 0.0))

    def kill(self, what: str, pick: random.Random) -> bool:
        """Kill the driver, its JVM or one of its tasks; False if there is none."""
        with contextlib.suppress(psutil.Error):
            if what == "driver":
                psutil.Process(self.pid).kill()
                return True
            if what == "jvm":
                psutil.Process(self.jvm.process.pid).kill()
                return True
            # The daemon that forks tasks is one of them, now and then.
            found = [*self.jvm.tasks(), *(self.jvm.daemons() if pick.random() < 0.2 else [])]
            if found:
                pick.choice(found).kill()
                return True
        return False

    def end(self) -> None:
        """End it, and its tasks; if its JVM is dead, whatever that left."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        wait_for(lambda: not runs(self.pid), "the end of a driver")
        if not self.jvm.runs:
            self.jvm.end()
        self._connection.close()


class Drivers:
    """Starts drivers: forks of a program that calls `serve`."""

    def __init__(self, program: Path, log: Path, *arguments: str) -> None:
        self._log = log.open("ab")
        self._folder = tempfile.TemporaryDirectory(prefix="drivers-")
        place = os.path.join(self._folder.name, "socket")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(place)
        self._listener.listen()
        self._listener.settimeout(DEADLINE_SECONDS)
        self._server = subprocess.Popen(
            [sys.executable, str(program), place, *arguments],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            text=True,
            preexec_fn=_end_with_parent,
        )
        self._jvm, self._driver = Jvm(self._log), None

    def start(self) -> Driver:
        """A driver that is ready; nothing of the one before is still under way."""
        if self._driver is not None:
            self._driver.end()
        if not self._jvm.runs:
            self._jvm = Jvm(self._log)
        print(json.dumps(self._jvm.gateway), file=self._server.stdin, flush=True)
        self._driver = Driver(self._jvm, self._listener.accept()[0])
        said = self._driver.answer()
        assert said == {"ready": True}, Path(self._log.name).read_text(errors="replace")[-4000:]
        self._jvm.end_tasks()
        return self._driver

    def __enter__(self) -> Drivers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._driver is not None:
            self._driver.end()
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()
        self._jvm.end()
        self._listener.close()
        self._folder.cleanup()
        self._log.close()


# --- the driver's side --------------------------------------------------------------------------


def serve(work: Work) -> None:
    """Fork a driver for each line on standard input: the address of its JVM.

    `work` is given a Spark session and requests, and makes an answer to each.
    """
    warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how drivers ended
    for line in sys.stdin:
        if os.fork() == 0:
            try:
                _drive(work, *json.loads(line))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)


def _drive(work: Work, port: int, secret: str) -> None:
    _end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ["PYSPARK_PYTHON"] = sys.executable
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    stream = connection.makefile("rw")

    def say(answer: Request) -> None:
        print(json.dumps(answer), file=stream, flush=True)

    say({"pid": os.getpid()})
    spark = _session()
    say({"ready": True})
    for answer in work(spark, map(json.loads, stream)):
        say(answer)


def _session() -> Any:
    """The session of the JVM, in which no driver before this one does anything any more."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    from windrow.spark.session import local_session

    gateway = launch_gateway()
    SparkContext._ensure_initialized(gateway=gateway)
    companion = getattr(gateway.jvm, "org.apache.spark.SparkContext$")
    running = getattr(companion, "MODULE$").getActive()
    if running.isDefined():
        context = gateway.jvm.JavaSparkContext.fromSparkContext(running.get())
        conf = SparkConf(_jconf=context.sc().conf())
        _end_calls(gateway.jvm, SparkContext(gateway=gateway, jsc=context, conf=conf))
    return local_session("driver", cores="2")


def _end_calls(jvm: Any, context: Any) -> None:
    """Cancel jobs until all calls of dead drivers, which may begin more of them, have returned."""

    arrays = getattr(jvm, "org.apache.commons.lang3.ArrayUtils")

    def gone() -> bool:
        context.cancelAllJobs()
        calls = 0
        for entry in jvm.java.lang.Thread.getAllStackTraces().entrySet().toArray():
            if entry.getKey().getName().startswith("Thread-"):
                stack = arrays.toString(entry.getValue())
                calls += "py4j.ClientServerConnection.run" in stack and "Command.execute" in stack
        return calls <= 1  # this one

    wait_for(gone, "the end of what a dead driver began")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while context.statusTracker().getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.01)
