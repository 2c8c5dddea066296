"""Stores that tests serve from."""

from __future__ import annotations

from pathlib import Path

import pytest

from windrow.online.stores.opening import open_store
from windrow.online.stores.store import RecordStore


@pytest.fixture
def records(tmp_path: Path) -> RecordStore:
    """An embedded store of its own."""
    return open_store(tmp_path / "records")
