"""The process that Spark forks workers from."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
from windrow.worker import without_trace

def worker(*args):
    if args == ("done",):
        return 0
    raise {error}("of a worker")

assert without_trace(worker)("done") == 0
without_trace(worker)("socket", True)
"""


@pytest.mark.parametrize(("error", "told"), [("BrokenPipeError", False), ("ValueError", True)])
def test_what_spark_does_not_want_any_more_is_no_failure(error: str, told: bool) -> None:
    program = _PROGRAM.format(error=error)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 1
    assert ("of a worker" in found.stderr) == told
    assert bool(found.stderr) == told
