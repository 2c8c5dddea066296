"""The measurement sees every process that lives, and says so where it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from peak_memory import PeakMemory

MIB = 2**20
HOLDS = f"data = b'x' * (100 * {MIB}); print('ready', flush=True); input()"
# A child that has ended and that nobody waits for, beside one that holds memory.
FAMILY = f"""
import os, subprocess, sys
if os.fork() == 0:
    os._exit(0)
child = subprocess.Popen([sys.executable, "-c", {HOLDS!r}], stdin=subprocess.PIPE)
input()
child.communicate(b"x")
"""


def family() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", FAMILY]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_child_that_nobody_waits_for_does_not_hide_the_others() -> None:
    process = family()
    with PeakMemory(process.pid) as memory:
        memory.look()
        process.communicate("x\n")
    assert 100 < memory.peak < 400


def test_a_process_that_is_never_seen_is_an_error() -> None:
    process = family()
    memory = PeakMemory(process.pid, ["java"])

    def measure() -> None:
        with memory:
            memory.look()
            process.communicate("x\n")

    with pytest.raises(RuntimeError, match=r"never seen: \['java'\]"):
        measure()


def test_a_process_that_cannot_be_looked_at_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError

    process = family()
    memory = PeakMemory(process.pid)
    monkeypatch.setattr("peak_memory.open", denied, raising=False)
    with pytest.raises(PermissionError):
        memory.look()
    process.communicate("x\n")
    memory.look()  # it has ended
    assert memory.peak == 0.0
