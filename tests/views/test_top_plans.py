"""Golden plans of the first rows: every choice and its opposite, and what is refused.

The plans are in `plans/top_choices.txt`; as those of `test_view_plans`, they are written again by
WINDROW_WRITE_PLANS=1.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import windrow
from windrow.errors import UnsupportedSQL

PLANS = Path(__file__).parent / "plans" / "top_choices.txt"
TABLES = {
    "t": "(k INT, v INT, s STRING)",
    "log": "(k INT, v INT, s STRING) TBLPROPERTIES ('append_only' = 'true')",
    "keyed": "(id INT PRIMARY KEY, v INT)",
}
OF_EACH = """
SELECT k, v FROM (
    SELECT{hint} k, v, {function}() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM {table}
) WHERE r <= {limit}
"""


def of_each(table: str, limit: int, function: str = "row_number", hint: str = "") -> str:
    return OF_EACH.format(table=table, limit=limit, function=function, hint=hint)


# Properties of the view, and its query.
CASES = {
    "monotonic_top_1": ("", "SELECT k, v FROM log ORDER BY v DESC LIMIT 1"),
    "monotonic_top_1_of_each": ("", of_each("log", 1)),
    "monotonic_of_each": ("", of_each("log", 3)),
    "monotonic_rank": ("", of_each("log", 3, "rank")),
    "monotonic_over_a_join": (
        "",
        "SELECT a.k, b.v FROM log a JOIN log b ON a.k = b.v ORDER BY b.v LIMIT 2",
    ),
    "not_monotonic_the_table": ("", "SELECT k, v FROM t ORDER BY v DESC LIMIT 1"),
    "not_monotonic_an_offset": ("", "SELECT k, v FROM log ORDER BY v DESC LIMIT 1 OFFSET 2"),
    "not_monotonic_an_aggregate": (
        "",
        "SELECT k, count(*) AS n FROM log GROUP BY k ORDER BY n DESC LIMIT 3",
    ),
    "not_monotonic_although_it_could": (
        "'topk' = 'sorted'",
        "SELECT k, v FROM log ORDER BY v LIMIT 1",
    ),
    "bounded_by_a_limit": (
        "",
        "SELECT k, v FROM (SELECT k, v FROM t ORDER BY v LIMIT 50) ORDER BY k DESC LIMIT 2",
    ),
    "bounded_by_aggregates_of_all_rows": (
        "",
        "SELECT n FROM (SELECT count(*) AS n FROM t UNION ALL SELECT count(*) AS n FROM keyed) "
        "ORDER BY n LIMIT 1",
    ),
    "bounded_by_groups_of_an_aggregate": (
        "",
        "SELECT * FROM (SELECT k, n, rank() OVER (PARTITION BY k ORDER BY n) AS r FROM "
        "(SELECT k, count(*) AS n FROM t GROUP BY k)) WHERE r <= 2",
    ),
    "bounded_by_a_primary_key": (
        "",
        "SELECT * FROM (SELECT id, v, row_number() OVER (PARTITION BY id ORDER BY v) AS r "
        "FROM keyed) WHERE r <= 2",
    ),
    "bounded_by_limited_groups": (
        "",
        "SELECT k, v, q FROM (SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v, k) AS q FROM "
        "(SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY s) AS r FROM t) WHERE r <= 5) "
        "WHERE q <= 2",
    ),
    "not_bounded_too_many": (
        "",
        "SELECT k, v FROM (SELECT k, v FROM t ORDER BY v LIMIT 50000) ORDER BY k DESC LIMIT 2",
    ),
    "stack_by_default": ("'topk' = 'stack'", "SELECT k, v FROM t ORDER BY v DESC LIMIT 3 OFFSET 1"),
    "stack_by_a_property": (
        "'topk' = 'stack', 'expected_group_size' = '300'",
        of_each("t", 2),
    ),
    "stack_by_a_hint": (
        "'topk' = 'stack', 'expected_group_size' = '300'",
        of_each("t", 2, hint=" /*+ EXPECTED_GROUP_SIZE(20) */"),
    ),
    "stack_by_a_hint_of_a_limit": (
        "'topk' = 'stack'",
        "SELECT /*+ EXPECTED_GROUP_SIZE(10) */ k, v FROM t ORDER BY v LIMIT 3",
    ),
    "stack_over_few": (
        "'topk' = 'stack'",
        "SELECT k, v FROM (SELECT k, v FROM t ORDER BY v LIMIT 50) ORDER BY k DESC LIMIT 2",
    ),
    "basic": ("'topk' = 'basic'", "SELECT k, v FROM log ORDER BY v DESC LIMIT 1"),
    "basic_without_order_keys": ("", "SELECT array(k) AS a FROM t ORDER BY v LIMIT 2"),
    "basic_without_a_limit": ("", "SELECT k FROM t ORDER BY v OFFSET 2"),
}


@pytest.fixture(scope="module")
def project(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> windrow.Project:
    found = windrow.Project(tmp_path_factory.mktemp("tops"), spark=spark, progress=False)
    for name, columns in TABLES.items():
        found.sql(f"CREATE TABLE {name} {columns}")
    return found


def explained(project: windrow.Project, properties: str, query: str) -> str:
    given = f"TBLPROPERTIES ({properties}) " if properties else ""
    frame = project.sql(f"EXPLAIN CREATE MATERIALIZED VIEW w {given}AS {query}")
    assert frame is not None
    return str(frame.collect()[0][0])


def test_plans(project: windrow.Project) -> None:
    found = "\n\n".join(
        f"-- {name}{f': {properties}' if properties else ''}\n{query.strip()}\n\n"
        f"{explained(project, properties, query)}"
        for name, (properties, query) in CASES.items()
    )
    if os.environ.get("WINDROW_WRITE_PLANS"):
        PLANS.write_text(found + "\n")
    assert found + "\n" == PLANS.read_text()


@pytest.mark.parametrize(
    ("properties", "query", "why"),
    [
        (
            "'topk' = 'monotonic'",
            "SELECT k, v FROM t ORDER BY v LIMIT 1",
            "'topk' = 'monotonic' is not possible: not append-only: rows of t may be deleted",
        ),
        (
            "'topk' = 'monotonic'",
            "SELECT k, v FROM log ORDER BY v LIMIT 1 OFFSET 1",
            "'monotonic' is not possible: there is an offset",
        ),
        (
            "'topk' = 'monotonic'",
            "SELECT array(k) AS a FROM log ORDER BY v LIMIT 1",
            "has no order keys",
        ),
        (
            "'topk' = 'heap'",
            "SELECT k, v FROM t ORDER BY v LIMIT 1",
            "the property 'topk' is 'heap'; it can be 'auto', 'basic'",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    project: windrow.Project, properties: str, query: str, why: str
) -> None:
    with pytest.raises(UnsupportedSQL, match=why):
        explained(project, properties, query)
