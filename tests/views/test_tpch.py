"""All 22 queries of TPC-H as views of one project, while orders come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tpch import QUERIES, TABLES, Refresh, columns, generate
from view_cases import LONG
from view_oracle import GENERATED, SETTINGS, differences, quiet_session

import windrow

SCALE, TICKS = "0.01", 2 if LONG else 1

# More rows than elsewhere: generated code is worth its while.
FASTER = {name: value for name, value in SETTINGS.items() if "codegen" not in name} | GENERATED


@pytest.fixture(scope="module")
def wrong(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """What is wrong with a query, by step; the ticks are done when it is first asked for."""
    found: dict[str, list[str]] = {}

    def find(name: str) -> list[str]:
        if not found:
            found.update({query: [] for query in QUERIES})
            for query, problem in problems(spark, tmp_path_factory):
                found[query].append(problem)
        return found[name]

    return find


def problems(spark: Any, folders: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    refresh = Refresh.of(generate(folders.mktemp("data"), SCALE))
    spark, oracle = quiet_session(spark, GENERATED), quiet_session(spark, FASTER)
    project = windrow.Project(folders.mktemp("project"), spark=spark, progress=False)
    for name in TABLES:
        table = refresh.tables[name]
        project.sql(f"CREATE TABLE {name} ({columns(table)})")
        project.table(name).insert(spark.createDataFrame(table))
    views = []
    for query, text in QUERIES.items():
        try:
            project.sql(f"CREATE MATERIALIZED VIEW {query} AS {text}")
            views.append(query)
        except Exception as error:
            yield query, f"not created: {error}"
    for step in range(TICKS + 1):
        if step:
            apply(project, spark, refresh.batch())
            try:
                project.tick()
            except Exception as error:
                yield from ((query, f"tick {step}: {error}") for query in views)
                return
        if step < TICKS and not LONG:
            continue  # what is filled wrong is wrong after a tick, too
        for name in TABLES:
            oracle.createDataFrame(refresh.tables[name]).createOrReplaceTempView(name)
        for query in views:
            lines = differences(oracle.sql(QUERIES[query]), project.read(query))
            if lines:
                yield query, "\n  ".join([f"{query} after tick {step}", *lines])


def apply(project: Any, spark: Any, changes: dict[str, pa.Table]) -> None:
    for name, change in changes.items():
        project.table(name).apply(spark.createDataFrame(change))


@pytest.mark.parametrize("query", QUERIES)
def test_tpch(spark: Any, wrong: Callable[[str], list[str]], query: str) -> None:
    assert not wrong(query), "\n".join(wrong(query))


def test_there_are_22_queries() -> None:
    assert len(QUERIES) == 22
