"""Maintained views beside Spark computing them again, on this machine, in one run; JSON last.

Two views over 10 M rows: a million groups (count, sum, max), and a join of two tables (10 M rows
out). A tick takes 10 k changes in, half of them deletes, some of them on the small side of the
join. Spark computes the same two queries over the rows that are there after the ticks, as Parquet
files, its session warm, and its result goes nowhere (`noop`); what it takes to store it is given
beside. Everything runs several times, in memory that the machine has (`resident`), and medians are
compared.

Then the same over tables of two sizes by turns, reductions over trips of taxis (`views_taxi`), the
first rows by each plan (`views_topk`), one more join where all arrangements exist (`views_delta`),
and the queries of TPC-H (`views_tpch`).

    python benchmarks/views.py [--scale 1.0] [--repeats 5] [--skip growth taxi topk delta tpch]
    python benchmarks/views.py --only taxi taxi_growth
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from peak_memory import PeakMemory
from resident import fill_free_memory
from views_data import DIMS, FACTS, Changes, by_turns, ratio, say, timed, write_dims, write_facts
from views_delta import delta_extra
from views_taxi import taxi, taxi_growth
from views_topk import topk_costs
from views_tpch import measured as tpch

MEMORY = "4g"  # of the JVM, for Spark's joins
ROWS, CHANGES = 10_000_000, 10_000
GROWTH = (1_000_000, 20_000_000)
SECTIONS = ("joins", "growth", "taxi", "taxi_kept", "taxi_growth", "topk", "delta", "tpch")
TOPK_SHARE = 0.1  # of the rows; a stack of eight levels stores most of them eight times

VIEWS = {
    "totals": "SELECT key, count(*) AS n, sum(amount) AS total, max(value) AS top"
    " FROM facts GROUP BY key",
    "charges": "SELECT f.id, f.key, f.amount * d.rate AS charge, d.label"
    " FROM facts f JOIN dims d ON f.dim = d.id",
}


def session() -> Any:
    from windrow.spark.session import local_session

    spark = local_session("bench-views", cores=str(os.cpu_count()), spark__driver__memory=MEMORY)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def median(times: list[float]) -> float:
    return statistics.median(times)


class Base:
    """Tables of some size, as files and in a project, with both views."""

    def __init__(self, spark: Any, folder: Path, rows: int) -> None:
        import windrow

        self.spark, self.folder, self.rows = spark, folder, rows
        self.changes = Changes(rows)
        self._write("before")
        self.project = windrow.Project(folder / "project", spark=spark, progress=False)
        for name, columns in {"facts": FACTS, "dims": DIMS}.items():
            self.project.sql(f"CREATE TABLE {name} ({columns})")
        self.load = timed(
            lambda: [self.project.table(n).insert(self._files(n)) for n in ("facts", "dims")]
        )
        self.fills = {
            name: timed(
                lambda name=name, query=query: self.project.sql(  # type: ignore[misc]
                    f"CREATE MATERIALIZED VIEW {name} AS {query}"
                )
            )
            for name, query in VIEWS.items()
        }
        say(f"{rows} rows: loaded in {self.load:.1f} s, views filled in {self.fills}")

    def _write(self, folder: str) -> None:
        """Both tables as they are now, as files."""
        write_facts(self.folder / folder / "facts", self.changes.ids(), self.rows)
        write_dims(self.folder / folder / "dims", self.changes.versions)

    def _files(self, name: str, folder: str = "before") -> Any:
        return self.spark.read.parquet(str(self.folder / folder / name))

    def write(self, count: int) -> float:
        """Changes into both tables, without a tick; seconds."""
        batch = self.changes.batch(count)
        frames = {name: self.spark.createDataFrame(rows) for name, rows in batch.items()}
        return timed(lambda: [self.project.table(n).apply(f) for n, f in frames.items()])

    def ticks(self, count: int, repeats: int) -> tuple[list[float], list[float]]:
        """Seconds of ticks, and of writing what they take in; the first of each warms up."""
        writes, ticks = zip(*[self.tick(count) for _ in range(repeats + 1)], strict=True)
        say(f"{self.rows} rows: writes {writes}, ticks {ticks}")
        return list(ticks[1:]), list(writes[1:])

    def tick(self, count: int) -> tuple[float, float]:
        """Seconds of writing changes, and of the tick that takes them in."""
        fill_free_memory()
        return self.write(count), timed(self.project.tick)

    def empty_ticks(self, repeats: int) -> list[float]:
        return [timed(self.project.tick) for _ in range(repeats + 1)][1:]

    def recompute(self, repeats: int, stored: bool = False) -> list[float]:
        """Seconds in which Spark computes both queries over files of the tables as they are now."""
        if not (self.folder / "now").exists():
            self._write("now")
        for name in ("facts", "dims"):
            self._files(name, "now").createOrReplaceTempView(name)

        def run(name: str, query: str) -> None:
            writer = self.spark.sql(query).write.mode("overwrite")
            if stored:
                writer.parquet(str(self.folder / "recomputed" / name))
            else:
                writer.format("noop").save()

        found = []
        for _ in range(repeats + 1):
            found.append(timed(lambda: [run(name, query) for name, query in VIEWS.items()]))
        say(f"{self.rows} rows: recomputed{' and stored' if stored else ''} {found}")
        return found[1:]

    def differences(self) -> int:
        """Rows in which the views differ from their queries over the project's own tables."""
        wrong = 0
        for name in ("facts", "dims"):
            self.project.read(name).createOrReplaceTempView(f"now_{name}")
        for name, query in VIEWS.items():
            text = query.replace("FROM facts", "FROM now_facts").replace(
                "JOIN dims", "JOIN now_dims"
            )
            found = self.project.read(name)
            # Comparing all rows broadcasts more than the driver holds.
            found.sparkSession.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
            expected = found.sparkSession.sql(text)
            # Sums of amounts differ in their last digits by the order of their terms.
            rounded = [
                f"round({column}, 4) AS {column}" if kind == "double" else column
                for column, kind in expected.dtypes
            ]
            expected, found = expected.selectExpr(*rounded), found.selectExpr(*rounded)
            wrong += expected.exceptAll(found).count() + found.exceptAll(expected).count()
        return wrong

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def beside_spark(spark: Any, root: Path, rows: int, repeats: int) -> dict[str, Any]:
    base = Base(spark, root / "base", rows)
    ticks, writes = base.ticks(CHANGES, repeats)
    empty = base.empty_ticks(repeats)
    recomputed = base.recompute(repeats)
    stored = base.recompute(max(1, repeats // 2), stored=True)
    wrong = base.differences()
    base.remove()
    return {
        "tick_vs_recompute": median(ticks) / median(recomputed),
        "tick_vs_recompute_stored": median(ticks) / median(stored),
        "fill_vs_spark": sum(base.fills.values()) / median(stored),
        "empty_tick_ms": 1000 * median(empty),
        "tick_seconds": median(ticks),
        "write_seconds": median(writes),
        "recompute_seconds": median(recomputed),
        "recompute_stored_seconds": median(stored),
        "fill_seconds": sum(base.fills.values()),
        "load_seconds": base.load,
        "differences": wrong,
    }


def growth(spark: Any, root: Path, sizes: tuple[int, int], repeats: int) -> dict[str, Any]:
    """The same changes over tables of two sizes, by turns."""
    bases = [Base(spark, root / f"rows_{rows}", rows) for rows in sizes]
    ticks = by_turns([lambda base=base: base.tick(CHANGES)[1] for base in bases], repeats)  # type: ignore[misc]
    for base in bases:
        base.remove()
    return {"tick_growth": ratio(ticks), "tick_growth_seconds": [median(one) for one in ticks]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0, help="1.0 is 10 M rows")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--skip", nargs="*", default=[], choices=SECTIONS)
    parser.add_argument("--only", nargs="*", default=SECTIONS, choices=SECTIONS)
    options = parser.parse_args()
    rows = int(ROWS * options.scale)
    out: dict[str, Any] = {"rows": rows, "changes": CHANGES}
    with tempfile.TemporaryDirectory(prefix="windrow-bench-", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("WINDROW_CACHE", f"{folder}/cache")
        spark = session()
        root, repeats = Path(folder), options.repeats
        sizes = int(GROWTH[0] * options.scale), int(GROWTH[1] * options.scale)
        wanted = [one for one in options.only if one not in options.skip]
        with PeakMemory(os.getpid(), ["java"]) as memory:
            if "joins" in wanted:
                out |= beside_spark(spark, root, rows, repeats)
            if "growth" in wanted:
                out |= growth(spark, root, sizes, repeats)
            if "taxi" in wanted:
                out |= taxi(spark, root, rows, repeats, kept="taxi_kept" in wanted)
            if "taxi_growth" in wanted:
                out |= taxi_growth(spark, root, sizes, repeats)
            if "topk" in wanted:
                out |= topk_costs(spark, root / "topk", int(rows * TOPK_SHARE), repeats=repeats)
            if "delta" in wanted:
                out |= delta_extra(spark, root / "delta", rows, repeats)
            if "tpch" in wanted:
                out |= tpch(spark, root, str(options.scale), repeats)
        out["memory_mib"] = memory.peak
        spark.stop()
    print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in out.items()}))


if __name__ == "__main__":
    main()
