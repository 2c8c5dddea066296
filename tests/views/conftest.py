from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import windrow as wr


@pytest.fixture
def project(spark: Any, tmp_path: Path) -> wr.Project:
    """A project without relations."""
    return wr.Project(tmp_path / "state", spark=spark)
