"""The short form of the campaigns of kills; the long one is `python tests/campaigns/kills.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import backfill_kills
import consistency_kills
import online_kills
import pytest
import shard_kills
import stream_kills
import view_kills


@pytest.mark.slow
def test_processes_at_work_on_a_shard(tmp_path: Path, many: Callable[..., int]) -> None:
    counts = shard_kills.campaign(tmp_path, many(24, 6), seed=5)
    assert counts["shard_kills"] >= 6
    assert counts["shard_half_written"] <= counts["shard_kills"]


@pytest.mark.slow
@pytest.mark.spark
def test_the_processes_of_backfills(tmp_path: Path) -> None:
    counts = backfill_kills.campaign(tmp_path, 3, seed=5, victims=("task", "driver", "jvm"))
    assert counts["backfill_kills"] == 3
    assert counts["backfills_interrupted"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scene", "how"), [("tables", ("driver", "step")), ("sources", ("step", "driver"))]
)
def test_the_processes_of_views(
    tmp_path: Path, spark: Any, scene: str, how: tuple[str, ...]
) -> None:
    counts = view_kills.campaign(tmp_path, 2, seed=5, spark=spark, how=how, scene=scene)
    assert counts["view_kills"] == 2


@pytest.mark.slow
@pytest.mark.spark
def test_the_processes_of_streams(tmp_path: Path) -> None:
    counts = stream_kills.campaign(tmp_path, 2, seed=5)
    assert counts["stream_kills"] == 2


@pytest.mark.slow
def test_what_is_served_meanwhile(tmp_path: Path, spark: Any) -> None:
    counts = consistency_kills.campaign(tmp_path, 2, seed=5, spark=spark)
    assert counts["kills"] == 2
    assert counts["not_empty"] > 0


@pytest.mark.slow
@pytest.mark.spark
def test_the_processes_behind_served_features(tmp_path: Path) -> None:
    counts = online_kills.campaign(tmp_path, 3, seed=5, redis=True)
    assert counts["answered"] > 0
    assert counts["refused"] < counts["asked"]
