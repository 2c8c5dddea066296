"""Views and tables that are served by key: what is fetched is what they hold after each tick."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from redis_process import RedisProcess
from server.serving_worker import running

import windrow as wr
from windrow import agg
from windrow.cli import main
from windrow.errors import (
    DefinitionError,
    NotServedError,
    OptionError,
    RequestError,
    SchemaError,
    StorageError,
)
from windrow.online import publish
from windrow.online.fetched import Status

TOP = """CREATE OR REPLACE MATERIALIZED VIEW top TBLPROPERTIES ('online' = 'city, listing') AS
SELECT city, listing, sum(stars) AS stars, sort_array(collect_list(stars)) AS each,
  named_struct('most', max(stars), 'none', CAST(NULL AS DATE)) AS more
FROM ratings WHERE stars < {below} GROUP BY city, listing"""
KEYS = [{"city": city, "listing": n} for city in ("Bern", "Oslo", "Rome") for n in range(3)]


def assert_served(project: wr.Project, name: str, keys: list[dict[str, Any]]) -> int:
    """What is fetched of each key is its row, or that there is none, or that there are several."""
    rows = [row.asDict(recursive=True) for row in project.read(name).collect()]
    refused = 0
    for key in keys:
        expected = [row for row in rows if all(row[column] == key[column] for column in key)]
        if len(expected) > 1:
            refused += 1
            with pytest.raises(RequestError, match=f"there are {len(expected)} rows"):
                project.fetch(name, [key])
            continue
        found = project.fetch(name, [key])
        values = {n: expected[0][n] if expected else None for n in found.names}
        assert found.rows() == [values], key
        assert {s for (s,) in found.statuses} == {Status.PRESENT if expected else Status.EMPTY}
        assert set(found.fresh_at) == {project._statements.history.ticked}
    return refused


def test_what_is_fetched_follows_each_tick(
    spark: Any, tmp_path: Path, redis_server: RedisProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """On both stores: of one history, the second project publishes what the first has ticked."""
    random_ = random.Random(11)
    root = tmp_path / "state"
    near = wr.Project(root, spark=spark, progress=False)
    far = wr.Project(root, spark=spark, progress=False, online=redis_server.address)
    near.sql("CREATE TABLE ratings (city STRING, listing INT, stars INT)")
    assert not (root / "online").exists()
    near.sql(TOP.format(below=5))
    near.sql("ALTER TABLE ratings SET TBLPROPERTIES ('online' = 'listing')")
    several: Counter[str] = Counter()
    for _ in range(3):
        cities = random_.choices(["Bern", "Oslo"], k=random_.randrange(1, 5))
        rows = [f"('{c}', {random_.randrange(3)}, {random_.randrange(6)})" for c in cities]
        near.sql(f"INSERT INTO ratings VALUES {', '.join(rows)}, (NULL, NULL, 1)")
        gone = f"listing = {random_.randrange(3)} AND stars > {random_.randrange(4)}"
        near.sql(f"DELETE FROM ratings WHERE {gone}")
        for project in (near, far):
            project.tick()
            assert_served(project, "top", KEYS)
            several["ratings"] += assert_served(project, "ratings", [{"listing": 1}])
    near.sql("DELETE FROM ratings WHERE listing <> 0")
    # A tick whose publication fails, as if its process had ended there, is published by the next.
    before = near.fetch("top", KEYS).columns
    with (
        mock.patch.object(publish.Publisher, "_run", side_effect=StorageError("lost")),
        pytest.raises(StorageError, match="lost"),
    ):
        near.tick()
    assert near.fetch("top", KEYS).columns == before
    with wr.Project(root, spark=spark, progress=False) as again:
        again.tick()
        assert_served(again, "top", KEYS)
    assert again.fetch("top", KEYS).columns != before
    # A span that is applied once more, because its end was not noted, changes nothing.
    near.sql("INSERT INTO ratings VALUES ('Bern', 0, 1), ('Rome', 2, 3)")
    with (
        mock.patch.object(publish.Generation, "advanced", side_effect=StorageError("lost")),
        pytest.raises(StorageError, match="lost"),
    ):
        near.tick()
    near.tick()
    assert_served(near, "top", KEYS)
    # Another query, and what is rebuilt, is served in place of what was.
    versions = [near.fetch("top", KEYS).version]
    with mock.patch.object(publish, "_TOGETHER", 1):  # as if there were many rows
        near.sql(TOP.format(below=3))
        assert_served(near, "top", KEYS)
        near.sql("DELETE FROM ratings WHERE city = 'Bern'")
        near.tick()
    assert_served(near, "top", KEYS)
    near.sql("REFRESH MATERIALIZED VIEW top")
    versions += [near.fetch("top", KEYS).version]
    assert_served(near, "top", KEYS)
    assert len(set(versions)) == 2
    with running(near.served) as serving:
        answer = serving.post("/v1/features/top", {"keys": KEYS[:1], "features": ["each", "more"]})
        assert (
            answer["features"]["each"] == near.fetch("top", KEYS[:1], features=["each"]).columns[0]
        )
        both = near.fetch("top", KEYS[:2], features=["stars"])
        body = {
            "features": ["top:stars"],
            "entities": {name: [key[name] for key in KEYS[:2]] for name in KEYS[0]},
        }
        (stars,) = serving.post("/get-online-features", body)["results"][2:]  # as Feast asks
        assert stars["values"] == both.columns[0]
        statuses = {Status.PRESENT: "PRESENT", Status.EMPTY: "NULL_VALUE"}
        assert stars["statuses"] == [statuses[one] for one in both.statuses[0]]
        status, _, words = serving.refused("/v1/features/top", {"keys": KEYS[:1], "at": 5})
        assert (status, "as of the last tick" in words) == (400, True)
    Path(tmp_path, "windrow.toml").write_text('definitions = ["features.py"]\n')
    Path(tmp_path, "features.py").write_text("")
    assert main(["--project", str(tmp_path), "fetch", "top", "city=Oslo", "listing=0"]) == 0
    (shown,) = near.fetch("top", [{"city": "Oslo", "listing": 0}], features=["stars"]).columns[0]
    printed = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert printed["stars"] == ([str(shown), "present"] if shown is not None else ["empty"])
    # What is dropped, or not to be served any more, is not served, and nothing is left of it.
    near.sql("ALTER MATERIALIZED VIEW top UNSET TBLPROPERTIES ('online')")
    with pytest.raises(NotServedError):
        near.fetch("top", KEYS)
    near.sql("ALTER MATERIALIZED VIEW top SET TBLPROPERTIES ('online' = 'listing, city')")
    assert_served(near, "top", KEYS)
    near.sql("DROP MATERIALIZED VIEW top")
    near.sql("DROP TABLE ratings")
    assert near.fetcher.names() == []
    assert near.records.size().records == 0


def test_what_cannot_be_served_is_refused_and_not_created(spark: Any, tmp_path: Path) -> None:
    project = wr.Project(tmp_path / "state", spark=spark, progress=False)
    wrong = "CREATE TABLE t (id INT, m MAP<STRING, INT>) TBLPROPERTIES ('online' = '{}')"
    with pytest.raises(DefinitionError, match="cannot be a key online"):
        project.sql(wrong.format("m"))
    with pytest.raises(SchemaError, match="idd"):
        project.sql(wrong.format("idd"))
    assert project.sql("SHOW TABLES").collect() == []
    project.sql("CREATE TABLE t (id INT, n INT, ts TIMESTAMP)")
    source = wr.EntitySource("t", view="t", time="ts")
    project.upload(wr.GroupBy("taken", source, ["id"], [agg.sum("n")]))
    view = "CREATE MATERIALIZED VIEW taken TBLPROPERTIES ('online' = 'id') AS SELECT id, n FROM t"
    with pytest.raises(DefinitionError, match="a group 'taken' is served"):
        project.sql(view)
    assert project.sql("SHOW MATERIALIZED VIEWS").collect() == []
    project.view("v", project.read("t"), properties={"reduce": "auto"}, online=["id", "ts"])
    assert project.fetcher.names() == ["taken", "v"]
    with pytest.raises(DefinitionError, match="'v' is the name of a view"):
        project.upload(wr.GroupBy("v", source, ["id"], [agg.sum("n")]))
    with pytest.raises(OptionError, match="reduce belongs to its plan"):
        project.sql("ALTER MATERIALIZED VIEW v SET TBLPROPERTIES ('reduce' = 'sorted')")
