"""What tasks tell the driver: errors as they were, and what they held."""

from __future__ import annotations

import doctest
import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from windrow import errors
from windrow.errors import DataError, SparkLostError, UpperMismatchError, WindrowError
from windrow.spark.memory import peak_memory
from windrow.spark.tasks import Written, run_numbered, run_writers
from windrow.storage.store import Store

MIB = 2**20
CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)]


def test_the_docstrings() -> None:
    assert doctest.testmod(errors).failed == 0


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_arrives_as_it_was(kind: type[WindrowError]) -> None:
    arguments = {"upper": 7} if kind is UpperMismatchError else {}
    error = kind("what failed", **arguments)
    error.add_note("and where")
    found = errors.from_json(errors.to_json(error))
    assert (type(found), str(found), vars(found)) == (kind, "what failed", vars(error))


def test_an_error_of_another_module_arrives_as_the_nearest_one() -> None:
    class TornError(DataError):
        pass

    found = errors.from_json(errors.to_json(TornError("a page", 3)))
    assert (type(found), found.args) == (DataError, ("a page", 3))


def test_an_error_of_a_task_is_raised_with_its_arguments(spark: Any, tmp_path: Path) -> None:
    def write(number: int) -> Written:
        raise UpperMismatchError("another was first", upper=12)

    with pytest.raises(UpperMismatchError, match="another was first") as caught:
        run_numbered(spark, 2, Store.at(tmp_path), write)
    assert caught.value.upper == 12


def test_a_task_whose_process_is_killed(spark: Any, tmp_path: Path) -> None:
    def write(number: int) -> Written:
        os.kill(os.getpid(), signal.SIGKILL)
        return Written([])

    for count in (1, 2):
        with pytest.raises(SparkLostError, match="process of a task has ended"):
            run_numbered(spark, count, Store.at(tmp_path), write)

    def fine(number: int) -> Written:
        return Written([], number)

    assert run_numbered(spark, 3, Store.at(tmp_path), fine).fingerprint == 3


def test_the_peak_of_a_task_is_its_own(spark: Any, tmp_path: Path) -> None:
    """Workers are used again; what a task held does not count for the next one."""

    def held(mebibytes: int) -> int:
        def write(batches: Iterator[pa.RecordBatch]) -> Written:
            list(batches)
            data = np.ones(mebibytes * MIB, np.int8)
            return Written([], int(data[0]), {"peak_memory": peak_memory()})

        frame = spark.range(0, 1, 1, 1)
        return run_writers(frame, Store.at(tmp_path), write).counters["peak_memory"]

    small = held(1)
    assert held(600) > small + 550 * MIB  # more than a process keeps of what it frees
    assert held(1) < small + 100 * MIB


GROWTH = """
import numpy as np
from windrow.spark.memory import Growth, reset_peak

MIB = 2**20
reset_peak()
large = np.ones(200 * MIB, np.int8)
del large  # a peak of the user's, before the run
own = np.ones(100 * MIB, np.int8)  # and what they still hold
growth = Growth()
held = np.ones(50 * MIB, np.int8)
assert 40 * MIB < growth.look() < 90 * MIB
del held
growth.look()
assert 40 * MIB < growth.seen < 90 * MIB
more = np.ones(300 * MIB, np.int8)  # a new peak, which shows afterwards too
del more
assert 250 * MIB < growth.look() < 400 * MIB
assert own.size
"""


def test_what_a_run_adds_to_a_process() -> None:
    """In a new process: this one may have freed memory that it keeps, and uses again."""
    subprocess.run([sys.executable, "-c", GROWTH], check=True)
