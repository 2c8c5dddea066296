"""The aggregate that docs/add_an_aggregate.md declares: it keeps its law, and works everywhere."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import laws
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from windrow import agg
from windrow.algebra.functions import FUNCTIONS
from windrow.algebra.stubs import stub

PAGE = Path(__file__).parents[2] / "docs" / "add_an_aggregate.md"
DECLARED, USED, FASTER = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
DAY = 86_400_000


@pytest.fixture(scope="module")
def scope() -> Iterator[dict[str, Any]]:
    """What the page declares, until the tests of this file are done."""
    found: dict[str, Any] = {"__name__": "geometric_mean"}
    try:
        exec(compile(DECLARED, str(PAGE), "exec"), found)
        yield found
    finally:
        FUNCTIONS.pop("geometric_mean", None)


@pytest.mark.parametrize("check", laws.CHECKS, ids=lambda check: check.__name__)
@settings(max_examples=30)
@given(data=st.data())
def test_it_keeps_its_law(scope: dict[str, Any], check: laws.Check, data: st.DataObject) -> None:
    check(scope["GeometricMean"](), data)


def test_it_is_used_as_the_page_says(scope: dict[str, Any]) -> None:
    exec(compile(USED, str(PAGE), "exec"), {})
    assert agg.geometric_mean.__doc__ == scope["GeometricMean"].__doc__
    assert "geometric_mean" in dir(agg)
    assert "def geometric_mean(column: str) -> Aggregation:" in stub()


@settings(max_examples=50)
@given(data=st.data())
def test_the_faster_way_agrees(scope: dict[str, Any], data: st.DataObject) -> None:
    own = dict(scope)
    exec(compile(FASTER, str(PAGE), "exec"), own)
    faster = type("Faster", (scope["GeometricMean"],), {"over_ranges": own["over_ranges"]})
    laws.evaluations_agree(faster(), data)


def test_backfills_give_it(spark: Any, tmp_path: Path, scope: dict[str, Any]) -> None:
    rng = random.Random(5)
    stamp = pa.timestamp("ms", "UTC")
    rows = [
        (rng.randrange(4), rng.randrange(9 * DAY), rng.choice([1.0, 2.0, 8.0, None]))
        for _ in range(300)
    ]
    keys, times, values = zip(*rows, strict=True)
    events = pa.table({"k": keys, "ts": pa.array(times, stamp), "x": values})
    pq.write_table(events, tmp_path / "events.parquet")
    asked = [(k, day * DAY + 5) for k in range(5) for day in (0, 3, 9)]
    left = pa.table({"k": [k for k, _ in asked], "ts": pa.array([q for _, q in asked], stamp)})
    pq.write_table(left, tmp_path / "queries.parquet")
    source = wr.EventSource("s", str(tmp_path / "events.parquet"), time="ts")
    group = wr.GroupBy("g", source, ["k"], [agg.geometric_mean("x").over("3d", kind="sliding")])
    join = wr.Join("j", wr.Queries(str(tmp_path / "queries.parquet"), time="ts"), [group])
    project = wr.Project(tmp_path / "state", spark=spark)
    for strategy in ("merge", "broadcast", "tiles"):
        frame = project.backfill(join, strategy=strategy).selectExpr(
            "k", "unix_millis(ts) AS q", "g_x_geometric_mean_3d AS mean"
        )
        found = {(row.k, row.q): row.mean for row in frame.collect()}
        assert found.keys() == set(asked)
        for (key, query), value in found.items():
            within = [x for k, t, x in rows if k == key and query - 3 * DAY <= t < query and x]
            if not within:
                assert value is None
            else:
                assert math.isclose(value, np.exp(np.mean(np.log(within))), rel_tol=1e-12)
