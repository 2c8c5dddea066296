"""What views keep and what it costs: counted, estimated before, shared, and by operator."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import windrow
from windrow.cli import main
from windrow.errors import RelationNotFoundError, UnsupportedSQL
from windrow.views.costs import estimates, sources
from windrow.views.costs.catalogue import Line
from windrow.views.costs.ticks import OUTPUT
from windrow.views.engine.definition import ViewDefinition

ROWS = 3_000
VIEWS = {
    "fares": "SELECT passengers, min(fare) AS low, max(fare) AS high, count(DISTINCT day) AS days, "
    "count(*) AS n FROM trips WHERE day < 20 GROUP BY passengers",
    "lows": "SELECT passengers, min(fare) AS low, count(day) AS n FROM trips WHERE day < 20 "
    "GROUP BY passengers",
    "boroughs": "SELECT borough, passengers, sum(fare) AS total FROM trips JOIN zones "
    "ON trips.zone = zones.zone WHERE day < 20 AND borough <> 'b0' GROUP BY borough, passengers",
    "best": "SELECT * FROM (SELECT zone, id, fare, row_number() OVER "
    "(PARTITION BY zone ORDER BY fare DESC, id) AS place FROM trips) WHERE place <= 3",
    "lists": "SELECT day, collect_list(fare) AS fares FROM trips WHERE fare > 30 GROUP BY day",
    "days": "SELECT DISTINCT day, passengers FROM trips",
    "stack": "SELECT zone, min(id) AS first FROM trips GROUP BY zone",
    "both": "SELECT day AS n FROM trips WHERE day < 5 UNION ALL SELECT zone FROM zones",
}
# Levels for 65,536 values of a group, which has 60.
OPTIONS = {"stack": " TBLPROPERTIES ('reduce' = 'bucketed', 'expected_group_size' = '65536')"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("costs")


@pytest.fixture(scope="module")
def project(spark: Any, root: Path) -> Iterator[windrow.Project]:
    """Trips and zones; views over them, filled, and one tick later."""
    with windrow.Project(root, spark=spark, progress=False) as found:
        found.sql("CREATE TABLE trips (id INT, passengers INT, zone INT, day INT, fare INT)")
        found.sql("CREATE TABLE zones (zone INT, borough STRING)")
        found.sql(
            "INSERT INTO trips SELECT id, pmod(hash(id, 1), 6), pmod(hash(id, 2), 50), "
            f"pmod(hash(id, 3), 30), pmod(hash(id, 4), 41) FROM range({ROWS})"
        )
        found.sql("INSERT INTO zones SELECT id, concat('b', id % 5) FROM range(50)")
        for name, query in VIEWS.items():
            found.sql(f"CREATE MATERIALIZED VIEW {name}{OPTIONS.get(name, '')} AS {query}")
        yield found


def counted(project: windrow.Project, query: str) -> int:
    frame = project.sql(f"SELECT count(*) FROM ({query})")
    assert frame is not None
    return int(frame.collect()[0][0])


def line_of(lines: list[Line], view: str, keeps: str) -> Line:
    return next(line for line in lines if (line.view, line.what) == (view, keeps))


def explained(project: windrow.Project, text: str) -> str:
    frame = project.sql(text)
    assert frame is not None
    return str(frame.collect()[0][0])


def test_counts_are_those_of_spark(project: windrow.Project) -> None:
    lines = project.costs(exact=True)
    some = "FROM trips WHERE day < 20"
    expected = {
        ("fares", "totals"): f"SELECT DISTINCT passengers {some}",
        ("fares", "values"): f"SELECT DISTINCT passengers, fare {some}",
        ("fares", "distinct values"): f"SELECT DISTINCT passengers, day {some}",
        ("best", "sorted rows"): "SELECT DISTINCT id, zone, fare FROM trips",
        ("best", "first rows"): VIEWS["best"],
        ("lists", "rows"): "SELECT DISTINCT day, fare FROM trips WHERE fare > 30",
        ("days", "its rows"): VIEWS["days"],
    }
    for (view, keeps), query in expected.items():
        assert line_of(lines, view, keeps).records == counted(project, query), (view, keeps)
    values = line_of(lines, "fares", "values")
    assert values.distinct_keys == counted(project, f"SELECT DISTINCT passengers {some}")
    assert all(line.exact and line.bytes > 0 and line.batches for line in lines)


def test_estimates_are_near(project: windrow.Project) -> None:
    for line in project.costs(exact=True):
        assert line.estimate is not None
        assert abs(line.estimate - line.records) <= max(0.3 * line.records, 3), line


def test_small_samples_are_extrapolated(
    project: windrow.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "SAMPLE_ROWS", ROWS // 4)
    found = {line.collection: line.records for line in project.costs(exact=True)}
    planning = project._statements.views.planning
    for name, job in ((job.name, job) for job in planning.ordered_jobs()):
        settings = ViewDefinition.from_json(project._statements.history.catalogue[name]).settings
        made = planning.estimates(job.plan, settings)
        for arrangement, one in made.items():
            records = found[job.places[arrangement]]
            assert records / 2 - 9 <= one.records <= 2 * records + 9, (name, one, records)


def test_without_samples_estimates_are_bounds(
    project: windrow.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimates, "SAMPLED_FROM", 10 * ROWS)
    project.sql(f"CREATE MATERIALIZED VIEW bounds AS {VIEWS['lows']}")
    lines = project.costs("bounds", exact=True)
    project.sql("DROP MATERIALIZED VIEW bounds")
    for line in lines:
        assert line.estimate is not None
        assert line.records <= line.estimate <= ROWS


def test_sharing_is_told_by_both(project: windrow.Project) -> None:
    lines = project.costs()
    mine, other = (line_of(lines, view, "values") for view in ("fares", "lows"))
    assert mine.collection == other.collection
    assert mine.shared_by == (f"lows ({other.number})",)
    assert other.shared_by == (f"fares ({mine.number})",)
    assert line_of(lines, "fares", "its rows").shared_by == ()


def test_levels_that_are_worth_nothing(project: windrow.Project) -> None:
    lines = [line for line in project.costs("stack", exact=True) if "level" in line.what]
    assert [line.what.partition(" of ")[0] for line in lines] == [
        *["values", "rejected values"] * 3,
        "values",
    ]
    levels = [line.records for line in lines[::2]]
    assert levels[0] == ROWS
    for level, rejected in enumerate(line.records for line in lines[1::2]):
        assert levels[level] == levels[level + 1] + rejected
    useless = [two for one, two in itertools.pairwise(levels) if two >= 0.9 * one]
    assert lines[0].advice is not None
    assert f"would save {sum(useless):,} records" in lines[0].advice
    assert [line.advice for line in lines[1:]] == [None] * 6
    assert "better: EXPECTED_GROUP_SIZE" in explained(project, "EXPLAIN ANALYZE stack")


def test_a_tick_is_told_by_operator(project: windrow.Project) -> None:
    before = line_of(project.costs(exact=True), "fares", "values")
    project.sql(
        "INSERT INTO trips VALUES (9001, 2, 1, 3, 99), (9002, 2, 1, 3, 99), (9003, 0, 1, 29, 5)"
    )
    project.sql("DELETE FROM trips WHERE id = 9002")
    project.tick()
    lines = project.costs("fares")
    bound = line_of(lines, "fares", "values")
    exact = line_of(project.costs("fares", exact=True), "fares", "values")
    assert not bound.exact
    assert exact.records == before.records + 1 <= bound.records
    assert bound.updates_since_compaction == bound.updates - before.updates == 1
    assert bound.batches == before.batches + 1
    assert (bound.rows_in, bound.rows_out) == (1, 2)  # one trip before day 20; a group changes
    assert bound.bytes_written
    assert bound.seconds is not None
    output = next(line for line in lines if line.number == OUTPUT)
    assert (output.rows_in, output.rows_out) == (2, 2)
    with windrow.Project(project._store.uri, spark=project.spark, progress=False) as other:
        assert other.costs("fares") == lines


def test_explain_analyze_ticks_first(project: windrow.Project) -> None:
    project.sql("INSERT INTO trips VALUES (9010, 3, 1, 3, 1000)")
    lines = explained(project, "EXPLAIN ANALYZE lows").splitlines()
    assert counted(project, "SELECT * FROM lows WHERE passengers = 3") == 1
    assert lines[0] == "View lows"
    told = [line.strip() for line in lines if "last tick" in line]
    # The view, of which a row is another; what is reduced; and the input.
    assert [one.partition(", ")[0] for one in told] == [
        "- last tick: 2 rows in",
        "- last tick: 1 rows in",
        "- last tick: 0 rows in",
    ]
    kept = [line for line in lines if "- keeps values" in line]
    assert len(kept) == 1
    assert "estimated" in kept[0]
    assert "shared with fares" in kept[0]
    assert explained(project, "EXPLAIN ANALYZE MATERIALIZED VIEW lows").startswith("View lows")


def test_explain_cost(project: windrow.Project) -> None:
    text = f"CREATE MATERIALIZED VIEW v AS {VIEWS['fares']}"
    found = explained(project, f"EXPLAIN COST {text}")
    plain = explained(project, f"EXPLAIN {text}")
    assert "about" not in plain
    assert [line.partition(" (about")[0] for line in found.splitlines()][:-2] == plain.splitlines()
    groups = counted(project, "SELECT DISTINCT passengers FROM trips WHERE day < 20")
    totals = next(line for line in found.splitlines() if "keeps totals" in line)
    assert totals.endswith(f"(about {groups} records)")
    assert "(about" in explained(project, "EXPLAIN COST fares")


def test_show_arrangements(project: windrow.Project) -> None:
    def views(text: str) -> set[str]:
        frame = project.sql(f"SHOW ARRANGEMENTS {text}")
        assert frame is not None
        return {row.view for row in frame.collect()}

    assert views("") == set(VIEWS)
    assert views("FROM fares") == views("IN Fares EXACT") == {"fares"}
    assert views("LIKE 'b*'") == {"boroughs", "best", "both"}
    assert views("FROM fares LIKE 'b*'") == set()
    frame = project.arrangements("fares")
    assert [row.records for row in frame.collect()] == [
        one.records for one in project.costs("fares")
    ]
    with pytest.raises(UnsupportedSQL, match=r"SHOW ARRANGEMENTS \[FROM view\]"):
        project.sql("SHOW ARRANGEMENTS OF fares")
    with pytest.raises(RelationNotFoundError, match="did you mean 'fares'"):
        project.sql("SHOW ARRANGEMENTS FROM fare")
    with pytest.raises(UnsupportedSQL, match="one name is expected"):
        project.sql("EXPLAIN ANALYZE SELECT 1")


def test_the_command(
    project: windrow.Project, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["costs", "lows", "--root", str(root)]) == 0
    out = capsys.readouterr().out
    assert "view lows" in out
    assert "shared with fares" in out
    assert main(["costs", "--json", "--exact", "--root", str(root)]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {one["view"] for one in found} == set(VIEWS)
    assert all(one["exact"] for one in found)
    assert main(["costs", "nothing", "--root", str(root)]) == 2
