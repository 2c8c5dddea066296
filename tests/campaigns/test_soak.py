"""The short form of the soak campaign; `make soak-online` runs the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
import soak_online


@pytest.mark.slow
@pytest.mark.spark
def test_serving_while_a_stream_ingests_and_uploads_swap(tmp_path: Path) -> None:
    found = soak_online.campaign(
        tmp_path, 3.0, keys=300, pace=100.0, pause=1.0, saturation=0.5, quick=True
    )
    assert found["requests"] > 0
    assert (found["failed"], found["wrong"]) == (0, 0)
    assert found["uploads"] >= 1
    assert found["batches"] >= 1
    assert found["compared"] == 300 * 11
    assert found["records_left_over"] == 0
