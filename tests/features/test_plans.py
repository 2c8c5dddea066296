"""Golden plans: a definition in, its plan out, in text files beside this one.

A file has a definition, a line `---`, and the plan that is expected. The definition sees `wr`,
`agg`, `site` (below), and gives `join`; `options` are arguments of the plan. Names of arrangements
and sizes of files are left out of the comparison. To write the plans of new files, or all of them
after a change, run the tests with WINDROW_WRITE_PLANS=1 and read the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from windrow import agg
from windrow.features import limits
from windrow.shard.shard import Shard
from windrow.spark.session import Engine

PLANS = Path(__file__).parent / "plans"
STAMP = pa.timestamp("us", "UTC")
DAY = 86_400_000_000  # microseconds
CASES = sorted(path.stem for path in PLANS.glob("*.txt"))


def needs_spark(case: str) -> bool:
    return (PLANS / f"{case}.txt").read_text().startswith("# with Spark")


class Site:
    """The tables of the definitions, relative to the folder in which the plans are made."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.project = wr.Project("state", spark=engine)
        for day in range(3):
            self.views(day)
        self.queries("checkouts", 100)
        self.queries("few", 10)

    def views(self, day: int, rows: int = 1_000, name: str = "part") -> None:
        """A file of views, by day; in place of one of the same name."""
        folder = Path(f"site/views/ds=2024-05-{day + 1:02}")
        folder.mkdir(parents=True, exist_ok=True)
        table = pa.table(
            {
                "view_id": pa.array(range(rows), pa.int64()),
                "user_id": pa.array([n % 20 for n in range(rows)], pa.int64()),
                "listing": pa.array([f"l{n % 7}" for n in range(rows)]),
                "price": pa.array([n / 4 for n in range(rows)]),
                "ts": pa.array([19_844 * DAY + day * DAY + n for n in range(rows)], STAMP),
            }
        )
        path = folder / f"{name}.parquet"
        before = path.stat().st_mtime_ns if path.exists() else 0
        pq.write_table(table, path)
        os.utime(path, ns=(before + 10**9, before + 10**9))

    def remove(self, day: int) -> None:
        Path(f"site/views/ds=2024-05-{day + 1:02}/part.parquet").unlink()

    def queries(self, name: str, rows: int) -> None:
        table = pa.table(
            {
                "buyer": pa.array([n % 20 for n in range(rows)], pa.int64()),
                "seller": pa.array([n % 5 for n in range(rows)], pa.int64()),
                "ts": pa.array([19_846 * DAY + n for n in range(rows)], STAMP),
            }
        )
        pq.write_table(table, f"site/{name}.parquet")

    def mutations(self) -> str:
        """A log of ratings that are given and withdrawn."""
        rows = 200
        table = pa.table(
            {
                "user_id": pa.array([n % 20 for n in range(rows)], pa.int64()),
                "stars": pa.array([n % 5 for n in range(rows)], pa.int64()),
                "ts": pa.array([19_844 * DAY + n for n in range(rows)], STAMP),
                "changed": pa.array([19_845 * DAY + n for n in range(rows)], STAMP),
                "is_before": [False] * rows,
            }
        )
        pq.write_table(table, "site/ratings.parquet")
        return "site/ratings.parquet"

    def shard(self, key: list[str]) -> str:
        schema = pa.schema(
            [("user_id", pa.int64()), ("item", pa.string()), ("n", pa.int64()), ("ts", STAMP)]
        )
        shard = Shard.create("site/stock", schema, key=key)
        rows = [[n % 20 for n in range(50)], ["a"] * 50, [1] * 50, [19_844 * DAY] * 50]
        shard.append(pa.table(rows, schema=schema), lower=0, upper=10)
        return "site/stock"

    def frame(self, path: str) -> Any:
        """Of an absolute path: Spark has a working folder of its own."""
        return self.engine.spark.read.parquet(os.path.abspath(path))

    def event_source(self, **options: Any) -> wr.EventSource:
        return wr.EventSource(name="views", table="site/views", time="ts", **options)

    def join(self, *groups: Any, left: str = "checkouts", **options: Any) -> wr.Join:
        queries = wr.Queries(table=f"site/{left}.parquet", time="ts")
        return wr.Join(name="training", left=queries, features=list(groups), **options)


def without_chance(plan: str) -> str:
    """A plan without what differs between machines and versions: digests, sizes, the root."""
    plan = plan.replace(f"{os.getcwd()}/", "")
    plan = re.sub(r"-[0-9a-f]{16}\b", "-DIGEST", plan)
    return re.sub(r"[\d,.]+ (KiB|MiB)", "SIZE", plan)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("case", [case for case in CASES if not needs_spark(case)])
def test_plans_without_spark(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise AssertionError(f"the plan {case} is made without Spark")

    check_plan(case, Site(Engine(start=refuse, master="local[2]")), monkeypatch)


@pytest.mark.parametrize("case", [case for case in CASES if needs_spark(case)])
def test_plans_with_spark(case: str, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check_plan(case, Site(Engine(spark, master="local[2]")), monkeypatch)


def check_plan(case: str, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    path = PLANS / f"{case}.txt"
    definition, _, expected = path.read_text().partition("\n---\n")
    names: dict[str, Any] = {"wr": wr, "agg": agg, "site": site, "options": {}}

    def limit(**sizes: int) -> None:
        for name, value in sizes.items():
            monkeypatch.setattr(limits, name, value)

    exec(compile(definition, str(path), "exec"), {**names, "limit": limit}, names)
    plan = without_chance(str(site.project.plan(names["join"], **names["options"]))) + "\n"
    if os.environ.get("WINDROW_WRITE_PLANS"):
        path.write_text(f"{definition}\n---\n{plan}")
    else:
        assert plan == expected


def test_there_are_enough_plans() -> None:
    assert len(CASES) >= 25
