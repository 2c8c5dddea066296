"""The costs of the first rows: building and one change, for each plan and several k.

One table of `rows` rows in a few groups; for each plan and k a view with the first k of each group,
by `ROW_NUMBER`. Building is creating the view over the full table. A change is one row and a tick,
three kinds of them: one that comes before all others, one that goes from there, and one that comes
behind the first k. Of an append-only table nothing goes. Times are medians; JSON last.

    python benchmarks/views_topk.py [--scale 1.0] [--repeats 3] [--k 1 10 1000]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resident import fill_free_memory
from views_data import say, timed

ROWS, GROUPS = 10_000_000, 10
KS = (1, 10, 1000)
PLANS = ("monotonic", "sorted", "stack_hinted", "stack_default", "basic")
_PROPERTIES = {
    "monotonic": "'topk' = 'monotonic'",
    "sorted": "'topk' = 'sorted'",
    "stack_hinted": "'topk' = 'stack', 'expected_group_size' = '{group}'",
    "stack_default": "'topk' = 'stack'",
    "basic": "'topk' = 'basic'",
}
_QUERY = """
SELECT g, id, v FROM (
    SELECT g, id, v, row_number() OVER (PARTITION BY g ORDER BY v DESC) AS place FROM {table}
) WHERE place <= {k}
"""


def topk_costs(
    spark: Any,
    folder: Path,
    rows: int,
    *,
    ks: Sequence[int] = KS,
    plans: Sequence[str] = PLANS,
    repeats: int = 3,
    groups: int = GROUPS,
) -> dict[str, Any]:
    """Seconds and records of each plan and k; and of monotonic plans, rows of a group over k."""
    import windrow

    project = windrow.Project(folder, spark=spark, progress=False)
    grows = " TBLPROPERTIES ('append_only' = 'true')"
    for table, properties in {"rows": "", "log": grows, "few": grows}.items():
        project.sql(f"CREATE TABLE {table} (g BIGINT, id BIGINT, v BIGINT){properties}")
        # An odd factor permutes the values, so that the first rows are anywhere.
        values = spark.range(rows if table != "few" else 100).selectExpr(
            f"id % {groups} AS g", "id", "(id * 2654435761) % 4294967296 AS v"
        )
        project.table(table).insert(values)
    for plan in plans:  # what is compiled and loaded once is not a cost of the first one
        _Measured(project, "few", plan, 1, groups).drop()
    measured: dict[str, Any] = {}
    bound = 0.0
    for k in ks:
        for plan in plans:
            table = "log" if plan == "monotonic" else "rows"
            one = _Measured(project, table, plan, k, max(1, rows // groups))
            measured.setdefault(f"k={k}", {})[plan] = one.costs(repeats)
            if plan == "monotonic":
                bound = max(bound, one.most_of_a_group() / k)
            one.drop()
            say(f"top {k}, {plan}: {measured[f'k={k}'][plan]}")
    found: dict[str, Any] = {"topk_rows": rows, "topk_groups": groups, "topk": measured}
    if "monotonic" in plans:
        found["topk_monotonic_rows"] = bound
    return found


class _Measured:
    """One view by one plan."""

    def __init__(self, project: Any, table: str, plan: str, k: int, group: int) -> None:
        self.project, self.table, self.k = project, table, k
        self.name = f"top_{plan}_{k}"
        properties = _PROPERTIES[plan].format(group=group)
        fill_free_memory()
        query = _QUERY.format(table=self.table, k=k)
        self.build = timed(
            lambda: project.sql(
                f"CREATE MATERIALIZED VIEW {self.name} TBLPROPERTIES ({properties}) AS {query}"
            )
        )

    def costs(self, repeats: int) -> dict[str, Any]:
        """Medians of seconds by kind of change, the first of each warming up; and records."""
        before, gone, behind = [], [], []
        for i in range(repeats + 1):
            first = {"g": 0, "id": -1 - i, "v": 2**40 * self.k + i}
            before.append(self._tick(first, 1))
            if self.table == "rows":
                gone.append(self._tick(first, -1))
            behind.append(self._tick({"g": 0, "id": -1 - i, "v": -self.k}, 1))
        found = {
            "build_seconds": round(self.build, 4),
            "before_seconds": _median(before[1:]),
            "behind_seconds": _median(behind[1:]),
            "records": sum(_records(table) for table in self._kept()),
        }
        if gone:
            found["gone_seconds"] = _median(gone[1:])
        return found

    def _tick(self, row: dict[str, int], diff: int) -> float:
        """Seconds of a tick that takes one change in."""
        self.project.table(self.table).apply([{**row, "_diff": diff}])
        return timed(self.project.tick)

    def _kept(self) -> list[Any]:
        """What the operators of the view keep, as tables with `_diff`."""
        history = self.project._statements.history
        ids = history.catalogue[self.name]["arrangements"].values()
        return [history.collection(id).snapshot().to_table() for id in ids]

    def most_of_a_group(self) -> int:
        """Rows that are stored of the largest group, copies included."""
        most = 0
        for table in self._kept():
            counts = table.group_by("g").aggregate([("_diff", "sum")])
            most = max([most, *counts.column("_diff_sum").to_pylist()])
        return most

    def drop(self) -> None:
        self.project.sql(f"DROP MATERIALIZED VIEW {self.name}")


def _records(table: Any) -> int:
    return int(table.num_rows)


def _median(times: list[float]) -> float:
    return round(statistics.median(times), 4)


def main() -> None:
    from windrow.spark.session import local_session

    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0, help="1.0 is 10 M rows")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--k", type=int, nargs="*", default=list(KS))
    parser.add_argument("--plans", nargs="*", default=list(PLANS), choices=PLANS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-bench-", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("WINDROW_CACHE", f"{folder}/cache")
        spark = local_session("bench-views-topk", cores=str(os.cpu_count()))
        spark.sparkContext.setLogLevel("ERROR")
        found = topk_costs(
            spark,
            Path(folder) / "project",
            int(ROWS * options.scale),
            ks=options.k,
            plans=options.plans,
            repeats=options.repeats,
        )
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
