"""How reductions are planned: each choice and its opposite, what is refused, and what is kept.

The plans are in `plans/reductions.txt`, each beneath its statement. To write them after a change,
run the tests with WINDROW_WRITE_PLANS=1 and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from view_cases import RELEASE

import windrow
from windrow.errors import OptionError, UnsupportedSQL

PLANS = Path(__file__).parent / "plans" / "reductions.txt"
FARES = """SELECT passenger_count, MIN(fare_amount), MAX(fare_amount), COUNT(DISTINCT trip_distance)
FROM {} GROUP BY passenger_count"""
CHOICES = {
    "of a table that changes: sorted": ("", FARES.format("tripdata")),
    "of a log: monotonic": ("", FARES.format("log")),
    "of a log, sorted all the same": ("'reduce' = 'sorted'", FARES.format("log")),
    "of a log, computed by Spark": ("'reduce' = 'basic'", FARES.format("log")),
    "bucketed, of groups of any size": (
        "'reduce' = 'bucketed'",
        "SELECT min(fare_amount) AS least FROM tripdata",
    ),
    "bucketed, by the hint of its block": (
        "'reduce' = 'bucketed', 'expected_group_size' = '20'",
        """SELECT max(m) AS largest FROM (
  SELECT /*+ EXPECTED_GROUP_SIZE(1000) */ passenger_count, min(fare_amount) AS m FROM tripdata
  GROUP BY passenger_count)""",
    ),
    "through an inner join: monotonic": (
        "",
        "SELECT max(a.fare_amount) AS m FROM log a JOIN log b ON a.id = b.trip_distance",
    ),
    "through an outer join: sorted": (
        "",
        "SELECT max(b.fare_amount) AS m FROM log a LEFT JOIN log b ON a.id = b.trip_distance",
    ),
    "of all classes: factored": (
        "",
        """SELECT passenger_count, max(fare_amount) AS m, sum(tip) AS s, collect_list(id) AS l,
  avg(DISTINCT tip) FILTER (WHERE trip_distance > 3) AS d, min(DISTINCT fare_amount) AS n
FROM log GROUP BY passenger_count""",
    ),
}
COLUMNS = "id BIGINT, passenger_count INT, fare_amount INT, trip_distance INT, tip DOUBLE"


@pytest.fixture(scope="module")
def project(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> windrow.Project:
    found = windrow.Project(tmp_path_factory.mktemp("plans"), spark=spark, progress=False)
    found.sql(f"CREATE TABLE tripdata ({COLUMNS})")
    found.sql(f"CREATE TABLE log ({COLUMNS}) TBLPROPERTIES ('append_only' = 'true')")
    return found


def explained(project: windrow.Project, properties: str, query: str) -> str:
    tail = f" TBLPROPERTIES ({properties})" if properties else ""
    frame = project.sql(f"EXPLAIN CREATE MATERIALIZED VIEW v{tail} AS {query}")
    assert frame is not None
    return str(frame.collect()[0][0])


def test_choices(project: windrow.Project) -> None:
    found = "\n\n".join(
        "\n".join(
            [
                f"-- {name}",
                *([f"-- TBLPROPERTIES ({properties})"] if properties else []),
                query,
                "",
                explained(project, properties, query),
            ]
        )
        for name, (properties, query) in CHOICES.items()
    )
    # Those of the newest Spark, unless an older one has its own.
    own = PLANS.parent / RELEASE / PLANS.name
    path = own if own.exists() else PLANS
    if os.environ.get("WINDROW_WRITE_PLANS"):
        path.write_text(found + "\n")
    assert found + "\n" == path.read_text()


def test_what_cannot_be_forced_is_refused(project: windrow.Project) -> None:
    query = FARES.format("tripdata")
    with pytest.raises(UnsupportedSQL, match=r"not append-only: rows of tripdata may be deleted"):
        explained(project, "'reduce' = 'monotonic'", query)
    with pytest.raises(OptionError, match=r"'quickly'; it is one of auto, basic, bucketed"):
        explained(project, "'reduce' = 'quickly'", query)
    with pytest.raises(OptionError, match=r"expected_group_size is 'many'"):
        explained(project, "'expected_group_size' = 'many'", query)
    with pytest.raises(UnsupportedSQL, match=r"line 1, column 8.*takes one number"):
        project.explain("SELECT /*+ EXPECTED_GROUP_SIZE('x') */ min(id) AS m FROM log")


def records(project: windrow.Project, view: str) -> dict[str, int]:
    """Rows of all that a view keeps, by what it is."""
    history = project._statements.history
    history.refresh()
    places = history.catalogue[view]["arrangements"]
    found: dict[str, int] = {}
    for id in places.values():
        collection = history.collection(id)
        found[id] = collection.snapshot().to_table().num_rows
    return found


def test_what_is_kept_is_what_the_formulas_say(project: windrow.Project) -> None:
    project.sql(
        "INSERT INTO tripdata SELECT id, id % 4, id % 1000, id % 7, 0.5 FROM range(4000)"
    )  # 250 fares for each of 4 numbers of passengers, each of them four times
    sizes = {}
    for name, properties in {
        "sorted_": "'reduce' = 'sorted'",
        "good": "'reduce' = 'bucketed', 'expected_group_size' = '256'",
        "bad": "'reduce' = 'bucketed', 'expected_group_size' = '1000000'",
    }.items():
        project.sql(
            f"CREATE MATERIALIZED VIEW {name} TBLPROPERTIES ({properties}) AS SELECT "
            "passenger_count, min(fare_amount) AS m FROM tripdata GROUP BY passenger_count"
        )
        sizes[name] = sum(records(project, name).values()) / 1_000
    assert sizes["sorted_"] == 1.004  # the distinct fares, and one row for each group
    assert 2 <= sizes["good"] <= 2.1
    assert sizes["bad"] > 3
    project.sql("DELETE FROM tripdata WHERE fare_amount < 100")
    project.tick()
    rows = {name: sorted(tuple(r) for r in project.read(name).collect()) for name in sizes}
    assert rows["good"] == rows["bad"] == rows["sorted_"] == [(i, 100 + i) for i in range(4)]
    project.sql("DROP MATERIALIZED VIEW bad")


def test_a_hint_is_no_part_of_what_is_computed(project: windrow.Project) -> None:
    """Operators with a hint run, and those that differ by one share what they keep."""
    hinted = "/*+ EXPECTED_GROUP_SIZE(50) */"
    for query in (
        "id, count(*) OVER (PARTITION BY passenger_count ORDER BY id) AS n FROM tripdata",
        "passenger_count, max(trip_distance) AS m FROM tripdata GROUP BY passenger_count",
    ):
        for name, hint in (("hinted", hinted), ("plain", "")):
            project.sql(f"CREATE MATERIALIZED VIEW {name} AS SELECT {hint} {query}")
        catalogue = project._statements.history.catalogue
        assert catalogue["hinted"]["arrangements"] == catalogue["plain"]["arrangements"]
        for name in ("hinted", "plain"):
            project.sql(f"DROP MATERIALIZED VIEW {name}")
