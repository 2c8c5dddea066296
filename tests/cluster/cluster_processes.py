"""A Spark cluster on loopback, and drivers that can be killed.

Each program leads a session of its own, so that whatever it started is known by the session, even
when its parent is dead, and can be ended with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyspark

from jvm import JAVA_OPTIONS

DEADLINE_SECONDS = 120
BUCKET = "shards"  # of the S3 server that all tests share
CHILD = Path(__file__).with_name("driver_child.py")


def wait_for(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return found


@dataclass
class Program:
    """A process with all that it started; what they print goes to files."""

    process: subprocess.Popen[bytes]
    output: Path
    log: Path

    @staticmethod
    def start(command: list[str], folder: Path, name: str, **environment: str) -> Program:
        output, log = folder / f"{name}.out", folder / f"{name}.log"
        with output.open("wb") as out, log.open("wb") as err:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env={
                    **os.environ,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
                    **environment,
                },
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        return Program(process, output, log)

    def pids(self) -> set[int]:
        """The processes of its session that run."""
        found = set()
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.Error):
                if os.getsid(pid) == self.process.pid and runs(pid):
                    found.add(pid)
        return found

    def kill(self) -> set[int]:
        """End it and all that it started, by SIGKILL; the pids of all that were there."""
        killed: set[int] = set()

        def gone() -> bool:
            running = self.pids()
            # The leader first: it must not start again what it has lost.
            for pid in sorted(running, key=lambda pid: pid != self.process.pid):
                with contextlib.suppress(psutil.Error):
                    psutil.Process(pid).kill()
            killed.update(running)
            return not running

        wait_for(gone, f"the end of {self.process.args}")
        self.process.wait()
        return killed

    def logged(self, pattern: str) -> str:
        """What a pattern's group matches in the log, once it does."""

        def find() -> str | None:
            found = re.search(pattern, self.log.read_text(errors="replace"))
            assert found or self.process.poll() is None, self.log.read_text(errors="replace")
            return found and found[1]

        return str(wait_for(find, f"{pattern!r} in {self.log}"))


def _end_with_parent() -> None:
    """Where the system can do that: if the tests themselves are killed, nothing stays behind."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def runs(pid: int) -> bool:
    """Whether there is such a process; a dead one may wait long for someone who asks for it."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@dataclass
class Cluster:
    """A standalone Spark cluster: a master, and workers of one core and one executor."""

    folder: Path
    master: Program
    url: str
    workers: list[Program] = field(default_factory=list)
    started: int = 0

    @staticmethod
    def start(folder: Path) -> Cluster:
        command = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0"]
        master = _spark_class([*command, "--webui-port", "0"], folder, "master")
        try:
            url = master.logged(r"Starting Spark master at (spark://\S+)")
        except BaseException:
            master.kill()
            raise
        return Cluster(folder, master, url)

    def add_worker(self) -> Program:
        name = f"worker-{self.started}"
        self.started += 1
        command = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--port", "0"]
        command += ["--webui-port", "0", "--cores", "1", "--memory", "600m"]
        command += ["--work-dir", str(self.folder / name), self.url]
        self.workers.append(_spark_class(command, self.folder, name))
        return self.workers[-1]

    def ready(self, workers: int) -> None:
        while len(self.workers) < workers:
            self.add_worker()
        for worker in self.workers:
            worker.logged(r"(Successfully registered) with master")

    def kill_worker(self, worker: Program) -> set[int]:
        self.workers.remove(worker)
        return worker.kill()

    def stop(self) -> None:
        for program in [*self.workers, self.master]:
            program.kill()

    def settings(self) -> dict[str, str]:
        """What a project's `[spark]` says to use it."""
        return {"spark.master": self.url, "spark.executor.memory": "512m"}


def _spark_class(arguments: list[str], folder: Path, name: str) -> Program:
    home = os.path.dirname(pyspark.__file__)
    command = [f"{home}/bin/spark-class", *arguments]
    return Program.start(command, folder, name, SPARK_HOME=home, SPARK_DAEMON_MEMORY="256m")


@dataclass
class Drivers:
    """Starts drivers, in `folder`."""

    folder: Path
    programs: list[Program] = field(default_factory=list)

    @staticmethod
    @contextlib.contextmanager
    def made(folder: Path) -> Iterator[Drivers]:
        """Drivers that end with the context."""
        found = Drivers(folder)
        try:
            yield found
        finally:
            for program in found.programs:
                program.kill()

    def start(self, **request: Any) -> Program:
        command = [sys.executable, str(CHILD), json.dumps(request)]
        name = f"driver-{len(self.programs)}"
        self.programs.append(Program.start(command, self.folder, name))
        return self.programs[-1]

    def summaries(self, driver: Program) -> list[dict[str, Any]]:
        """What a driver's backfills did, once it is through."""
        assert driver.process.wait(DEADLINE_SECONDS) == 0, driver.log.read_text(errors="replace")
        return [json.loads(line) for line in driver.output.read_text().splitlines()]

    def run(self, **request: Any) -> list[dict[str, Any]]:
        return self.summaries(self.start(**request))


@dataclass(frozen=True)
class Gate:
    """Where tasks or drivers wait until they are let through."""

    folder: Path

    @staticmethod
    def make(parent: Path) -> Gate:
        (parent / "gate").mkdir()
        return Gate(parent / "gate")

    def waiting(self) -> set[int]:
        """The processes that wait."""
        names = [path.name for path in self.folder.iterdir()]
        return {int(n.removeprefix("waiting-")) for n in names if n.startswith("waiting-")}

    def wait_for(self, count: int, driver: Program) -> set[int]:
        def enough() -> bool:
            ended = driver.process.poll() is not None
            assert not ended, driver.log.read_text(errors="replace")
            return len(self.waiting()) >= count

        wait_for(enough, f"{count} processes at the gate")
        return self.waiting()

    def open(self) -> None:
        (self.folder / "open").touch()
