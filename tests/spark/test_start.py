"""Spark starts quietly, and Ctrl-C ends what has been started so far."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark.java_gateway
import pytest

from windrow.errors import OptionError, WindrowError
from windrow.spark.start import VERBOSE, launching, start_spark

gateway: Any = pyspark.java_gateway
WAITS = [sys.executable, "-c", "print('starting', flush=True); input()"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The processes that are launched in place of Java."""
    found: list[Any] = []
    popen = gateway.Popen

    def launch(*arguments: Any, **options: Any) -> Any:
        found.append(popen(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(gateway, "Popen", launch)
    # What PySpark remembers of a running Java is put back afterwards.
    for name in ("_gateway", "_jvm"):
        monkeypatch.setattr(pyspark.SparkContext, name, getattr(pyspark.SparkContext, name))
    return found


def launch_and(then: Any) -> None:
    gateway.Popen(WAITS, stdin=subprocess.PIPE)
    then()


def test_ctrl_c_ends_what_has_been_started(started: list[Any], tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), launching(None):
            launch_and(lambda: signal.raise_signal(signal.SIGINT))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    assert pyspark.SparkContext._gateway is None


def test_it_stays_in_its_session(started: list[Any]) -> None:
    """In a group of its own, that Ctrl-C does not reach. Priorities count within a session."""

    def look() -> None:
        (process,) = started
        assert os.getsid(process.pid) == os.getsid(0)
        assert os.getpgid(process.pid) == process.pid
        raise InterruptedError  # which ends it

    with pytest.raises(InterruptedError), launching(None):
        launch_and(look)


def test_an_error_ends_it_too_and_its_last_words_are_shown(
    started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VERBOSE, raising=False)

    def start() -> Any:
        process = gateway.Popen([sys.executable, "-c", "print('No Java.\\nTry another.')"])
        process.wait()
        raise RuntimeError("JAVA_GATEWAY_EXITED.\nat line 1")

    with pytest.raises(WindrowError, match="did not start: JAVA_GATEWAY_EXITED") as error:
        start_spark(start)
    assert str(error.value).endswith("the settings of the session\n  No Java.\n  Try another.")
    assert started[0].returncode == 0


def test_what_is_refused_is_not_spark_that_does_not_start() -> None:
    def refuse() -> Any:
        raise OptionError("no")

    with pytest.raises(OptionError, match=r"^no$"):
        start_spark(refuse)


def test_a_command_shows_nothing_of_spark_unless_asked(tmp_path: Path, command: Any) -> None:
    assert command("init", "shop").returncode == 0
    (tmp_path / "shop" / "windrow.toml").write_text(
        'definitions = ["features.py"]\n[spark]\n"spark.master" = "local[1]"\n'
    )
    backfill = ("backfill", "training", "--project", "shop", "--rows", "1")
    done = command(*backfill)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[0] == "backfill"
    asked = command(*backfill, "--verbose")
    assert asked.returncode == 0
    assert "log4j" in asked.stderr
    assert list(tmp_path.glob("windrow-spark-*")) == []
