"""Tables, sources and views as sources of features: all of their history, point in time."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from windrow import agg
from windrow.errors import DefinitionError, RelationNotFoundError, SchemaError

Row = tuple[str, int, dt.datetime]
TS = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


class Replayed:
    """A table of stock, and each state that it was in, with the time from which on it was."""

    def __init__(self, project: wr.Project) -> None:
        self._project = project
        project.sql("CREATE TABLE stock (item STRING, n INT, ts TIMESTAMP, more MAP<STRING, INT>)")
        self.states: list[tuple[int, list[tuple[str, int]]]] = []

    def run(self, text: str) -> None:
        project = self._project
        project.sql(text)
        rows = project.read("stock").select("item", "n").collect()
        self.states.append((project._statements.history.time, [tuple(row) for row in rows]))

    def at(self, query: int) -> list[tuple[str, int]]:
        """The rows after all changes strictly before `query`."""
        return next((rows for time, rows in reversed(self.states) if time < query), [])

    def queries(self) -> list[int]:
        """Just before, at and just after each change."""
        return [time + more for time, _ in self.states for more in (-1, 0, 1)]


def asked(path: Path, queries: list[int], items: tuple[str, ...] = ("rake", "hoe")) -> wr.Queries:
    rows = [(item, query) for query in queries for item in items]
    table = pa.table({"item": [r[0] for r in rows], "q": pa.array([r[1] for r in rows])})
    pq.write_table(table, path)
    return wr.Queries(str(path), time="q")


def stocked(source: wr.EntitySource) -> wr.GroupBy:
    return wr.GroupBy("g", source, ["item"], [agg.sum("n"), agg.max("n"), agg.count("n")])


def check(project: wr.Project, join: wr.Join, stock: Replayed) -> None:
    found = project.backfill(join).select("item", "q", "g_n_sum", "g_n_max", "g_n_count").collect()
    assert len(found) == 2 * len(set(stock.queries()))
    for item, query, *features in found:
        numbers = [n for name, n in stock.at(query) if name == item]
        expected = [sum(numbers), max(numbers), len(numbers)] if numbers else [None, None, 0]
        assert [features[0], features[1], features[2] or 0] == expected, (item, query)


def test_a_table_that_changes(project: wr.Project, tmp_path: Path) -> None:
    stock = Replayed(project)
    ts = "TIMESTAMP '2024-05-01'"
    stock.run(f"INSERT INTO stock VALUES ('rake', 4, {ts}, map('a', 1)), ('hoe', 7, {ts}, NULL)")
    stock.run(f"INSERT INTO stock VALUES ('rake', 9, {ts}, NULL), ('rake', 9, {ts}, NULL)")
    stock.run("UPDATE stock SET n = n + 1 WHERE item = 'rake'")
    stock.run("DELETE FROM stock WHERE n > 9")
    source = wr.EntitySource(name="stock", view="Stock", time="ts")
    queries = sorted(set(stock.queries()))
    join = wr.Join("j", asked(tmp_path / "q.parquet", queries), [stocked(source)])
    check(project, join, stock)
    stock.run("UPDATE stock SET item = 'rake' WHERE item = 'hoe'")
    stock.run("TRUNCATE TABLE stock")
    queries = sorted(set(stock.queries()))
    join = wr.Join("j", asked(tmp_path / "r.parquet", queries), [stocked(source)])
    check(project, join, stock)


def test_a_view_and_a_source(project: wr.Project, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    ts = pa.array([TS, TS, TS], pa.timestamp("us", tz="UTC"))
    rows = pa.table({"item": ["rake", "rake", "hoe"], "n": [1, 2, 5], "ts": ts})
    pq.write_table(rows, folder / "a.parquet")
    project.sql(f"CREATE TABLE sold USING parquet LOCATION '{folder}'")
    project.sql(
        "CREATE MATERIALIZED VIEW best AS SELECT item, max(n) AS n, max(ts) AS ts FROM sold "
        "GROUP BY item"
    )
    first = project._statements.history.time
    pq.write_table(rows.slice(0, 1).set_column(1, "n", pa.array([8])), folder / "b.parquet")

    def features(view: str) -> Counter[Any]:
        source = wr.EntitySource(name="s", view=view, time="ts")
        queries = asked(tmp_path / f"{view}.parquet", [first + 1, first + 10**9])
        found = project.backfill(wr.Join("j", queries, [stocked(source)]))
        return Counter(map(tuple, found.select("item", "g_n_max", "g_n_count").collect()))

    # The backfill has looked at the files, as a query would.
    hoes = [("hoe", 5, 1), ("hoe", 5, 1)]
    assert features("best") == Counter([("rake", 2, 1), ("rake", 8, 1), *hoes])
    assert features("sold") == Counter([("rake", 2, 2), ("rake", 8, 3), *hoes])


def test_what_cannot_be(project: wr.Project, tmp_path: Path) -> None:
    project.sql("CREATE TABLE stock (item STRING COLLATE UNICODE_CI, n INT, ts TIMESTAMP)")

    def plan(source: wr.EntitySource) -> Any:
        return project.plan(wr.Join("j", asked(tmp_path / "q.parquet", [5]), [stocked(source)]))

    with pytest.raises(RelationNotFoundError, match=r"or view 'stok' .* mean 'stock'"):
        plan(wr.EntitySource(name="s", view="stok", time="ts"))
    with pytest.raises(SchemaError, match="column 'item' of table stock has the type string coll"):
        plan(wr.EntitySource(name="s", view="stock", time="ts"))
    with pytest.raises(DefinitionError, match="give one of shard and view, not both"):
        wr.EntitySource(name="s", view="stock", shard="x", time="ts")
    with pytest.raises(DefinitionError, match=r"view is ''; .* a table or view of the project"):
        wr.EntitySource(name="s", view="", time="ts")
