"""Starting Spark on this machine: quietly, and so that Ctrl-C ends it at once.

The Java process that PySpark starts writes a dozen lines before it does anything, and more whenever
it thinks that someone should know. Unless WINDROW_VERBOSE is set they go to a file, which is shown
if Spark does not start.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from windrow.errors import WindrowError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERBOSE = "WINDROW_VERBOSE"
_LAST_LINES = 5
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")  # each error once more, as JSON


def start_spark(start: Callable[[], SparkSession]) -> SparkSession:
    """What `start` gives; the Java that it starts for that is quiet, and ends with Ctrl-C."""
    log = None if os.environ.get(VERBOSE) else _log_file()
    try:
        with launching(log):
            session = start()
    except WindrowError:
        raise
    except Exception as error:  # a missing Java shows in several ways
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise WindrowError(
            f"Spark did not start: {reason}. It needs Java 17 or newer; check `java -version`, and "
            f"the settings of the session{_end_of(log)}"
        ) from error
    if log is not None:
        from pyspark.logger import PySparkLogger

        for name in _LOGGERS:
            PySparkLogger.getLogger(name).setLevel("CRITICAL")
    return session


def _log_file() -> str:
    """A new file, for as long as this process lives."""
    handle, path = tempfile.mkstemp(prefix="windrow-spark-", suffix=".log")
    os.close(handle)
    atexit.register(_remove, path)
    return path


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _end_of(log: str | None) -> str:
    """The last lines that were written, if there are any."""
    if log is None:
        return ""
    with open(log, errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return "".join(f"\n  {line}" for line in lines[-_LAST_LINES:])


@contextlib.contextmanager
def launching(log: str | None) -> Iterator[None]:
    """While it is entered, a Java process that PySpark starts writes to the file `log`.

    Ctrl-C, and any error, ends that process: PySpark itself would wait for it, and forget it.
    """
    import pyspark.java_gateway

    gateway: Any = pyspark.java_gateway
    started: list[Any] = []
    popen = gateway.Popen

    def launch(command: Any, **options: Any) -> Any:
        # A group of its own: it can be ended with all that it has started.
        options["process_group"] = 0
        if log is None:
            started.append(popen(command, **options))
        else:
            with open(log, "ab") as file:
                started.append(popen(command, **options, stdout=file, stderr=file))
        return started[-1]

    def interrupt(number: int, frame: object) -> None:
        _end(started)
        raise KeyboardInterrupt

    listens = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    gateway.Popen = launch
    if listens:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except BaseException:
        _end(started)
        raise
    finally:
        gateway.Popen = popen
        if listens and signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(processes: list[Any]) -> None:
    """End Java processes, and let PySpark start another."""
    from pyspark import SparkContext

    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if processes:
        SparkContext._gateway = None
        SparkContext._jvm = None
