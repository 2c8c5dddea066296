"""Reductions over trips of taxis beside Spark computing them again; see `views.py`.

The view has functions of every class: min and max of a value with few different ones, a count of
distinct values, the minimum of millions of different times, a count and an average.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from resident import fill_free_memory
from taxi_data import PASSENGERS, TRIPS, TripChanges, write_trips
from views_data import by_turns, ratio, say, timed

QUERY = (
    "SELECT passenger_count, min(fare_amount) AS least, max(fare_amount) AS most, "
    "count(DISTINCT trip_distance) AS distances, min(pickup) AS first_pickup, count(*) AS trips, "
    "avg(tip) AS tip FROM tripdata GROUP BY passenger_count"
)
EXTREMES = (
    "SELECT passenger_count, min(fare_amount) AS least, max(fare_amount) AS most "
    "FROM tripdata GROUP BY passenger_count"
)
PICKUPS = "SELECT passenger_count, min(pickup) AS first_pickup FROM tripdata GROUP BY 1"
CHANGES = 10_000


class Trips:
    """Trips as files and in a project, with the view."""

    def __init__(self, spark: Any, folder: Path, rows: int) -> None:
        import windrow

        self.spark, self.folder, self.rows = spark, folder, rows
        write_trips(folder / "tripdata", np.arange(rows))
        self.changes = TripChanges(rows)
        self.project = windrow.Project(folder / "project", spark=spark, progress=False)
        self.project.sql(f"CREATE TABLE tripdata ({TRIPS})")
        loaded = timed(lambda: self.project.table("tripdata").insert(self.files()))
        filled = timed(lambda: self.create("fares", QUERY))
        say(f"{rows} trips: loaded in {loaded:.1f} s, view filled in {filled:.1f} s")

    def files(self) -> Any:
        return self.spark.read.parquet(str(self.folder / "tripdata"))

    def create(self, name: str, query: str, **properties: Any) -> None:
        given = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        with_ = f"TBLPROPERTIES ({given}) " if given else ""
        self.project.sql(f"CREATE MATERIALIZED VIEW {name} {with_}AS {query}")

    def ticks(self, repeats: int) -> list[float]:
        """Seconds of ticks; the first warms up."""
        found = [self.tick() for _ in range(repeats + 1)]
        say(f"{self.rows} trips: ticks {found}")
        return found[1:]

    def tick(self) -> float:
        """Seconds of a tick that takes changes in."""
        fill_free_memory()
        changes = self.spark.createDataFrame(self.changes.batch(CHANGES))
        self.project.table("tripdata").apply(changes)
        return timed(self.project.tick)

    def recompute(self, repeats: int) -> list[float]:
        """Seconds in which Spark computes the view over files of the trips as they are now."""
        write_trips(self.folder / "now", self.changes.ids())
        self.spark.read.parquet(str(self.folder / "now")).createOrReplaceTempView("tripdata")

        def run() -> None:
            self.spark.sql(QUERY).write.mode("overwrite").format("noop").save()

        found = [timed(run) for _ in range(repeats + 1)]
        say(f"{self.rows} trips: recomputed {found}")
        return found[1:]

    def differences(self) -> int:
        """Rows in which the view differs from its query over the project's own table."""
        self.project.read("tripdata").createOrReplaceTempView("now_tripdata")
        found = self.project.read("fares")
        session = found.sparkSession
        wanted = session.sql(QUERY.replace("FROM tripdata", "FROM now_tripdata"))
        rounded = [
            f"round({name}, 6) AS {name}" if kind == "double" else name
            for name, kind in wanted.dtypes
        ]
        wanted, found = wanted.selectExpr(*rounded), found.selectExpr(*rounded)
        return int(wanted.exceptAll(found).count() + found.exceptAll(wanted).count())

    def records(self, view: str) -> dict[str, int]:
        """Records of what a view keeps, by what it is."""
        listed = self.project.arrangements(view, exact=True).collect()
        found: dict[str, int] = {}
        for row in listed:
            found[row["what"]] = found.get(row["what"], 0) + int(row["records"])
        return found

    def remove(self) -> None:
        self.project.close()
        shutil.rmtree(self.folder)


def taxi(spark: Any, root: Path, rows: int, repeats: int, kept: bool = True) -> dict[str, Any]:
    """One tick over Spark's recomputation; and what each plan of min and max keeps, if wanted."""
    base = Trips(spark, root / "taxi", rows)
    ticks, recomputed = base.ticks(repeats), base.recompute(repeats)
    found = {
        "taxi_tick_vs_recompute": statistics.median(ticks) / statistics.median(recomputed),
        "taxi_tick_seconds": statistics.median(ticks),
        "taxi_recompute_seconds": statistics.median(recomputed),
        "taxi_differences": base.differences(),
    }
    if kept:
        found |= _kept(base)
    base.remove()
    return found


def _kept(base: Trips) -> dict[str, Any]:
    """What is kept for min and max, by plan."""
    base.create("extremes", EXTREMES, reduce="sorted")
    pairs = sum(n for what, n in base.records("extremes").items() if what == "values")
    trips = base.spark.table("tripdata")
    distinct = trips.select("passenger_count", "pickup").distinct().count()
    kept = {}
    for name, size in {"good": base.rows // len(PASSENGERS), "bad": 4_000_000_000}.items():
        base.create(f"{name}_hint", PICKUPS, reduce="bucketed", expected_group_size=size)
        found = base.records(f"{name}_hint")
        kept[name] = sum(n for what, n in found.items() if what != "totals") / distinct
        say(f"{name} hint: {found} of {distinct} distinct rows")
    return {
        "taxi_pairs": pairs,
        "bucketed_good_hint": kept["good"],
        "bucketed_bad_hint": kept["bad"],
    }


def taxi_growth(spark: Any, root: Path, sizes: tuple[int, int], repeats: int) -> dict[str, Any]:
    """The same changes over tables of two sizes, by turns."""
    bases = [Trips(spark, root / f"taxi_{rows}", rows) for rows in sizes]
    ticks = by_turns([base.tick for base in bases], repeats)
    for base in bases:
        base.remove()
    seconds = [statistics.median(one) for one in ticks]
    return {"taxi_tick_growth": ratio(ticks), "taxi_tick_growth_seconds": seconds}
