"""The few things Windrow needs of a Spark session, for classic and Connect sessions alike."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from windrow.spark.settings import fixed_session, release
from windrow.spark.start import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULT_PARALLELISM = 8


def local_session(name: str = "windrow", *, cores: str = "*", **conf: str) -> SparkSession:
    """A Spark session on this machine, with settings that suit Windrow's tasks."""
    from pyspark.sql import SparkSession

    # Tasks run in this Python, where Windrow is installed, not in the first one on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # Folders of partitions are listed here: a Spark job to do so takes longer than the listing.
        .config("spark.sql.sources.parallelPartitionDiscovery.threshold", "4096")
        .config("spark.driver.host", "127.0.0.1")
        # Over TCP every task waits 40 ms for an acknowledgement that the other side delays.
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.python.daemon.module", "windrow.worker")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
        .config("spark.sql.shuffle.partitions", "8")
    )
    for key, value in conf.items():
        builder = builder.config(key.replace("__", "."), value)
    return builder.getOrCreate()


def default_session() -> SparkSession:
    """The session that is running, as it is; or else a local one."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or start_spark(local_session)


class Engine:
    """A Spark session that is started when it is first needed.

    `given` is the session of the user; `spark`, in which Windrow works, a clone of it with fixed
    settings. Planning over plain files needs neither; `tasks`, how many run at once, is known
    before it runs.
    """

    def __init__(
        self,
        session: SparkSession | None = None,
        start: Callable[[], SparkSession] = default_session,
        master: str = "local[*]",
    ) -> None:
        self._session, self._start, self._master = session, start, master
        self._fixed: SparkSession | None = None

    @property
    def given(self) -> SparkSession:
        if self._session is None:
            self._session = self._start()
        return self._session

    @property
    def spark(self) -> SparkSession:
        if self._fixed is None:
            self._fixed = fixed_session(self.given)
        return self._fixed

    def renew(self) -> None:
        """Clone the session once more: views and functions may have been added to it."""
        if self._fixed is not None:
            release(self._fixed)
        self._fixed = None

    @property
    def started(self) -> bool:
        return self._session is not None

    @functools.cached_property
    def tasks(self) -> int:
        """How many tasks run at once, as far as can be told."""
        if self._session is None:
            found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", self._master)
            if found is not None:
                return len(os.sched_getaffinity(0)) if found[1] == "*" else int(found[1] or 1)
        return parallelism(self.given)


def has_own_jobs(spark: SparkSession) -> bool:
    """Whether each thread of this process has Spark jobs, and properties of them, of its own.

    It has unless PYSPARK_PIN_THREAD=false: then threads of Python share those of the JVM.
    """
    from py4j.clientserver import ClientServer

    return isinstance(spark.sparkContext._gateway, ClientServer)


def parallelism(spark: SparkSession) -> int:
    """How many tasks the session runs at once, as far as it tells."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return _DEFAULT_PARALLELISM
