from __future__ import annotations

from collections.abc import Iterator

import pytest
from disks import Disk, small_disk


@pytest.fixture
def disk() -> Iterator[Disk]:
    """A small disk; where nobody may mount one, there is nothing that could be full."""
    try:
        with small_disk() as disk:
            yield disk
    except PermissionError as error:
        pytest.skip(f"cannot mount a file system in memory: {error}")
