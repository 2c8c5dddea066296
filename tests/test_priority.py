"""What gives way has the lowest priority, and its session too where Linux divides by sessions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from windrow import cli

PROGRAM = """
import contextlib, os
from pathlib import Path
from windrow.priority import give_way
give_way()
group = Path("/proc/self/autogroup")
said = []
with contextlib.suppress(OSError):  # empty, or not there, for a session that is in no group
    said = group.read_text().split()
print(os.nice(0), said[-1] if said else "none")
"""


@pytest.mark.parametrize("leads", [True, False])
def test_gives_way(leads: bool) -> None:
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        start_new_session=leads,
        capture_output=True,
        text=True,
        check=True,
    )
    nice, group = said.stdout.split()
    assert nice == "19"
    if group != "none":
        assert (group == "19") == leads, "a session is lowered by who leads it, and by nobody else"


OTHERS = """
import os
from windrow.priority import stay_off
every = os.sched_getaffinity(0)
os.sched_setaffinity(0, {min(every)})
stay_off(os.getpid())  # itself: it was seen where it may run
assert os.sched_getaffinity(0) == (every - {min(every)} or every), os.sched_getaffinity(0)
stay_off(2**22 + 1)  # nobody
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="not Linux")
def test_stays_off_the_processor_of_another() -> None:
    subprocess.run([sys.executable, "-c", OTHERS], check=True)


def test_the_option_comes_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    monkeypatch.setattr(cli, "give_way", lambda: called.append(True))
    nowhere = ["--project", str(tmp_path)]  # so that the command ends before it does anything
    for command in (["upload"], ["stream"], ["run"], ["tick"], ["backfill", "x"]):
        assert cli.main([*command, *nowhere]) == cli.REFUSED
        assert not called
        assert cli.main([*command, *nowhere, "--background"]) == cli.REFUSED
        assert called.pop()
