"""Histories in which maintained views tend to go wrong, one by one.

Every step is compared with Spark's own answer (`History.apply`); where a step has to fail, nothing
may have been committed, and the view goes on once its input is corrected.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from view_cases import one_of
from view_oracle import History, Row, canonical_rows

import windrow
from windrow.errors import WindrowError

NAN, INF = float("nan"), float("inf")
Start = Callable[..., History]


@pytest.fixture
def start(spark: Any, tmp_path: Path) -> Start:
    """A project with these tables: columns by name."""

    def make(**tables: str) -> History:
        project = windrow.Project(tmp_path / "project", spark=spark, progress=False)
        return History.start(project, spark, tables)

    return make


def content(history: History, view: str) -> list[Row]:
    """The rows of a view, as they are, in an order."""
    return sorted(canonical_rows(history.project.read(view).toArrow()), key=repr)


def plus(*rows: Row) -> list[tuple[Row, int]]:
    return [(row, 1) for row in rows]


def minus(*rows: Row) -> list[tuple[Row, int]]:
    return [(row, -1) for row in rows]


AGGREGATES = """count(*) AS c, count(v) AS n, sum(v) AS s, avg(v) AS a, min(v) AS lo, max(v) AS hi,
    count(DISTINCT v) AS d, stddev(v) AS sd, sort_array(collect_list(v)) AS l"""


# --- groups -----------------------------------------------------------------------------------


def test_no_rows_no_values_and_a_value_are_three_answers(start: Start) -> None:
    history = start(t="k INT, v INT")
    history.create("by_key", f"SELECT k, {AGGREGATES} FROM t GROUP BY k")
    history.create("whole", f"SELECT {AGGREGATES} FROM t")
    history.check()
    assert content(history, "by_key") == []
    assert len(content(history, "whole")) == 1
    history.apply({"t": plus((1, None), (1, None), (2, 5))})
    history.apply({"t": plus((1, 7), (None, 3))})
    history.apply({"t": minus((1, 7))})
    history.apply({"t": minus((1, None), (None, 3))})
    history.apply({"t": minus((1, None), (2, 5))})
    assert content(history, "by_key") == []
    assert [row[:3] for row in content(history, "whole")] == [(0, 0, None)]


def test_a_group_vanishes_and_returns(start: Start) -> None:
    history = start(t="k INT, v INT")
    history.create("g", f"SELECT k, {AGGREGATES} FROM t GROUP BY k")
    history.create("big", "SELECT k, sum(v) AS s FROM t GROUP BY k HAVING count(*) > 1")
    history.create("d", "SELECT DISTINCT k FROM t")
    rows = [(1, 10), (1, 20), (2, 30)]
    for _ in range(2):
        history.apply({"t": plus(*rows)})
        history.apply({"t": minus(*rows[:2])})
        history.apply({"t": minus(rows[2])})


def test_the_current_minimum_is_deleted_again_and_again(start: Start) -> None:
    history = start(t="k INT, v INT, s STRING")
    history.create("g", "SELECT k, min(v) AS lo, max(v) AS hi, min(s) AS s FROM t GROUP BY k")
    history.create("whole", "SELECT min(v) AS lo, max(s) AS hi FROM t")
    history.create("by", "SELECT k, min_by(s, v) AS s, max_by(s, v) AS z FROM t GROUP BY k")
    history.apply({"t": plus(*[(k, v, f"s{v}") for k in (1, 2) for v in (5, 1, 4, 2, 3)])})
    for v in (1, 2, 3, 4, 5):
        history.apply({"t": minus((1, v, f"s{v}"))})
    history.apply({"t": [*plus((2, 0, "s0")), *minus((2, 1, "s1"), (2, 5, "s5"))]})
    history.apply({"t": [*minus((2, 0, "s0")), *plus((1, None, None))]})


def test_multiplicities(start: Start) -> None:
    history = start(t="k INT, v INT", u="k INT")
    history.create("p", "SELECT k FROM t")
    history.create("d", "SELECT DISTINCT k FROM t")
    history.create("j", "SELECT t.k, t.v FROM t JOIN u ON t.k = u.k")
    history.create("semi", "SELECT k FROM t WHERE k IN (SELECT k FROM u)")
    history.create("both", "SELECT k FROM t INTERSECT ALL SELECT k FROM u")
    history.create("less", "SELECT k FROM t EXCEPT ALL SELECT k FROM u")
    history.create("twice", "SELECT k FROM t UNION ALL SELECT k FROM t")
    history.create("top", "SELECT k, v FROM t ORDER BY k, v LIMIT 4")
    history.apply({"t": [((1, 1), 3), ((2, 2), 2)], "u": [((1,), 2)]})
    history.apply({"t": [((1, 1), -2), ((1, None), 1)], "u": [((1,), 1), ((2,), 3)]})
    history.apply({"t": [((2, 2), 3)], "u": [((1,), -3)]})
    history.apply({"t": [((1, 1), -1), ((2, 2), -4)], "u": [((2,), -2)]})


def test_changes_that_cancel_within_a_batch(start: Start) -> None:
    history = start(t="k INT, v INT", u="k INT, w INT")
    history.create("g", f"SELECT k, {AGGREGATES} FROM t GROUP BY k")
    history.create("j", "SELECT t.v, u.w FROM t LEFT JOIN u ON t.k = u.k")
    history.create("top", "SELECT v FROM t ORDER BY v LIMIT 2")
    history.apply({"t": plus((1, 1), (2, 2)), "u": plus((1, 9))})
    before = content(history, "j")
    history.apply({"t": [((1, 1), -1), ((1, 1), 1)], "u": [((3, 3), 1), ((3, 3), -1)]})
    history.apply({"t": [((3, 0), 2), ((2, 2), -1), ((3, 0), -2), ((2, 2), 1)]})
    assert content(history, "j") == before


def test_batches_that_cancel_before_a_tick(start: Start) -> None:
    history = start(t="k INT, v INT")
    history.create("g", f"SELECT k, {AGGREGATES} FROM t GROUP BY k")
    history.apply({"t": plus((1, 1))})
    history.write({"t": plus((1, 2), (2, 2))})
    history.write({"t": minus((1, 2), (1, 1))})
    history.write({"t": [*plus((1, 1)), *minus((2, 2))]})
    history.tick()
    assert [row[:2] for row in content(history, "g")] == [(1, 1)]


def test_a_tick_without_changes(start: Start) -> None:
    history = start(t="k INT, v INT")
    history.create("g", "SELECT k, sum(v) AS s FROM t GROUP BY k")
    history.tick()
    history.apply({"t": plus((1, 1))})
    for _ in range(3):
        history.tick()
    history.apply({"t": []})


# --- top-k ------------------------------------------------------------------------------------


def test_ties_at_the_last_row(start: Start) -> None:
    history = start(t="k INT, v INT, w INT")

    def ranked(function: str, order: str) -> str:
        return f"""SELECT k, v, w FROM (
            SELECT *, {function} OVER (PARTITION BY k ORDER BY {order}) AS r FROM t) WHERE r <= 2"""

    history.create("rank", ranked("rank()", "v"))
    history.create("dense", ranked("dense_rank()", "v"))
    history.create("numbered", ranked("row_number()", "v, w"))
    history.create("top", "SELECT k, v, w FROM t ORDER BY v, w, k LIMIT 3")
    # Windrow breaks ties by the whole row, so that the answer is one; Spark leaves it open.
    history.create(
        "tied",
        "SELECT k, v, w FROM t ORDER BY v LIMIT 3",
        expected="SELECT k, v, w FROM t ORDER BY v, k, v, w LIMIT 3",
    )
    history.create(
        "any_order",
        "SELECT v, w FROM t LIMIT 2",
        expected="SELECT v, w FROM t ORDER BY v, w LIMIT 2",
    )
    history.apply({"t": plus((1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 2, 1), (2, 1, 1))})
    history.apply({"t": minus((1, 1, 1))})
    history.apply({"t": [((1, 1, 2), 2), ((1, 0, 9), 1)]})
    history.apply({"t": [((1, 1, 2), -2), ((1, 0, 9), -1), ((1, None, None), 2)]})
    history.apply({"t": minus((1, 1, 2), (1, 1, 3), (1, None, None), (1, None, None))})


def test_offsets(start: Start) -> None:
    history = start(t="v INT, w INT")
    history.create("middle", "SELECT v, w FROM t ORDER BY v, w LIMIT 2 OFFSET 2")
    history.create("rest", "SELECT v, w FROM t ORDER BY v DESC, w OFFSET 3")
    history.create("past", "SELECT v FROM t ORDER BY v LIMIT 5 OFFSET 100")
    history.check()
    history.apply({"t": plus((1, 1), (2, 2))})
    history.apply({"t": [((1, 1), 2), ((3, 3), 1)]})
    history.apply({"t": [((0, 0), 3), ((1, 1), -1)]})
    history.apply({"t": [((0, 0), -3), ((1, 1), -2), ((2, 2), -1)]})


# --- joins ------------------------------------------------------------------------------------

JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
CONDITIONS = ("t.k = u.k AND t.v < u.w", "t.k = u.k", "t.k <=> u.k")


def join_views(history: History, condition: str) -> None:
    for number, kind in enumerate(JOINS):
        query = f"SELECT t.k, t.v, u.k AS uk, u.w FROM t {kind} u ON {condition}"
        history.create(f"j{number}", query)
    for name, kind in (("semi", "LEFT SEMI JOIN"), ("anti", "LEFT ANTI JOIN")):
        history.create(name, f"SELECT t.k, t.v FROM t {kind} u ON {condition}")


@pytest.mark.parametrize("condition", one_of(2, CONDITIONS))
def test_joins(start: Start, condition: str) -> None:
    history = start(t="k INT, v INT", u="k INT, w INT")
    join_views(history, condition)
    history.apply({"t": plus((1, 1), (2, 2), (None, 3))})
    # Both sides of a match arrive at once, beside one whose partner was there.
    history.apply({"t": plus((3, 1)), "u": plus((3, 5), (1, 4), (None, 4))})
    # The key becomes NULL, on one side and on the other.
    history.apply({"t": [*minus((3, 1)), *plus((None, 1))]})
    history.apply({"u": [*minus((1, 4)), *plus((None, 9))], "t": plus((3, 1))})
    # Both sides go at once; a second match arrives.
    history.apply({"t": minus((3, 1)), "u": [*minus((3, 5)), *plus((2, 3), (2, 1))]})
    # The last match goes, and only then the row itself.
    history.apply({"u": minus((2, 3))})
    history.apply({"u": minus((2, 1))})
    history.apply({"t": minus((2, 2)), "u": plus((2, 7))})
    # What is matched moves to the other key while its partner does.
    history.apply({"t": [*minus((1, 1)), *plus((2, 1))], "u": [*minus((2, 7)), *plus((1, 7))]})


def test_self_joins(start: Start) -> None:
    history = start(e="a INT, b INT")
    history.create("next", "SELECT x.a, y.b FROM e x JOIN e y ON x.b = y.a")
    history.create("same", "SELECT x.b, y.b AS c FROM e x JOIN e y ON x.a = y.a")
    history.create("left_", "SELECT x.a, x.b, y.b AS c FROM e x LEFT JOIN e y ON x.b = y.a")
    history.create("ends", "SELECT a, b FROM e x WHERE NOT EXISTS (SELECT 1 FROM e WHERE a = x.b)")
    history.create(
        "loops",
        "SELECT x.a, y.a AS b, z.a AS c FROM e x JOIN e y ON x.b = y.a JOIN e z ON y.b = z.a"
        " AND z.b = x.a",
    )
    history.apply({"e": plus((1, 1))})
    history.apply({"e": plus((1, 2), (2, 1))})
    history.apply({"e": [((1, 1), 2), ((2, 1), -1)]})
    history.apply({"e": [*minus((1, 1), (1, 1), (1, 2)), *plus((2, 2), (2, None), (None, 2))]})
    history.apply({"e": minus(*history.model.rows["e"])})


def test_not_in_when_nulls_come_and_go(start: Start) -> None:
    history = start(t="k INT, v INT", u="k INT, w INT")
    history.create("out", "SELECT k, v FROM t WHERE k NOT IN (SELECT k FROM u)")
    history.create("out2", "SELECT v FROM t WHERE (k, v) NOT IN (SELECT k, w FROM u)")
    history.create("outc", "SELECT k FROM t WHERE k NOT IN (SELECT k FROM u WHERE u.w = t.v)")
    history.create("either", "SELECT k FROM t WHERE v = 1 OR k NOT IN (SELECT k FROM u)")
    history.apply({"t": plus((1, 1), (2, 2), (None, 3))})
    assert len(content(history, "out")) == 3  # NULL NOT IN nothing is true
    history.apply({"u": plus((1, 1))})
    history.apply({"u": plus((None, 2))})
    assert content(history, "out") == []
    history.apply({"t": plus((5, 5)), "u": minus((1, 1))})
    history.apply({"u": minus((None, 2))})
    assert len(content(history, "out")) == 4
    history.apply({"u": plus((2, 9)), "t": [*minus((2, 2)), *plus((None, 2))]})


def test_exists_without_correlation(start: Start) -> None:
    history = start(t="k INT", u="k INT")
    history.create("some_", "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE k > 1)")
    history.create("none_", "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM u)")
    history.apply({"t": plus((1,), (2,))})
    history.apply({"u": plus((1,))})
    history.apply({"u": plus((2,), (3,)), "t": plus((3,))})
    history.apply({"u": minus((2,))})
    history.apply({"u": minus((3,), (1,)), "t": minus((1,))})


# --- scalar subqueries -------------------------------------------------------------------------


def test_a_scalar_subquery_that_becomes_empty(start: Start) -> None:
    history = start(t="k INT, v INT", u="k INT, w INT")
    history.create("one", "SELECT v, (SELECT w FROM u) AS w FROM t")
    history.create("more", "SELECT v FROM t WHERE v > (SELECT max(w) FROM u)")
    history.create("each", "SELECT v, (SELECT sum(w) FROM u WHERE u.k = t.k) AS w FROM t")
    history.create("counted", "SELECT v, (SELECT count(*) FROM u WHERE u.k = t.k) AS c FROM t")
    history.create("top", "SELECT k, (SELECT max(w) FROM u) - max(v) AS d FROM t GROUP BY k")
    history.apply({"t": plus((1, 1), (1, 5), (2, 2))})
    history.apply({"u": plus((1, 3))})
    history.apply({"u": [*minus((1, 3)), *plus((2, 0))]})
    history.apply({"u": minus((2, 0)), "t": minus((1, 1))})
    history.apply({"u": plus((1, None))})


@pytest.mark.parametrize(
    "query",
    [
        "SELECT v, (SELECT w FROM u) AS w FROM t",
        "SELECT v FROM t WHERE v < (SELECT w FROM u)",
        "SELECT v, (SELECT w FROM u WHERE u.k = t.k) AS w FROM t",
    ],
)
def test_a_scalar_subquery_with_two_rows(start: Start, query: str) -> None:
    history = start(t="k INT, v INT", u="k INT, w INT")
    history.create("one", query)
    history.create("other", "SELECT count(*) AS c FROM u")
    history.apply({"t": plus((1, 1), (2, 2)), "u": plus((1, 5))})
    fails_and_recovers(history, "one", {"u": plus((1, 6))}, {"u": minus((1, 5))})


# --- errors -----------------------------------------------------------------------------------


def fails_and_recovers(
    history: History, view: str, wrong: Any, repair: Any, words: str = "", times: int = 2
) -> None:
    """A batch makes a tick fail; nothing is committed; another batch corrects it."""
    before = {name: content(history, name) for name in history.views}
    history.write(wrong)
    for _ in range(times):  # a failed tick fails again, it is not forgotten
        with pytest.raises(WindrowError, match=rf"view {view}\b.*{words}"):
            history.project.tick()
        for name, rows in before.items():
            assert content(history, name) == rows, f"{name} has changed in a tick that failed"
    history.apply(repair)
    history.tick()


# A query, rows that make it fail, what corrects them, and what the error says.
FAILING: list[tuple[str, Any, Any, str]] = [
    (
        "SELECT k, 10 / v AS q FROM t",
        plus((5, 1), (7, 0), (8, 3)),
        minus((7, 0)),
        r"operator Project .*for the row \(k: 7, v: 0\)",
    ),
    ("SELECT k FROM t WHERE 10 / v > 1", plus((7, 0)), minus((7, 0)), "Filter .*k: 7, v: 0"),
    ("SELECT k, sum(10 DIV v) AS s FROM t GROUP BY k", plus((1, 0)), minus((1, 0)), "v: 0"),
    ("SELECT k, 10 / (sum(v) - 3) AS s FROM t GROUP BY k", plus((1, 2)), plus((1, 1)), "k: 1"),
    (
        "SELECT a.k FROM t a JOIN t b ON a.k = b.k AND 1 / a.v > 0",
        plus((1, 0)),
        minus((1, 0)),
        "v: 0",
    ),
    (
        "SELECT a.k, b.v FROM t a FULL JOIN t b ON a.k = b.k AND 1 / (a.v - b.v + 5) > 0",
        plus((1, 6)),
        minus((1, 6)),
        r"operator Join full outer .*k: 1, v: 1, k: 1, v: 6",
    ),
    (
        "SELECT k, sum(v * CAST(3e9 AS BIGINT)) AS s FROM t GROUP BY k",
        [((1, 2_000_000_000), 2)],
        [((1, 2_000_000_000), -2)],
        r"operator Reduce sum.* of the group \{'k': 1\}",
    ),
    (
        "SELECT k, CAST(v || coalesce(CAST(k AS STRING), 'x') AS INT) AS i FROM t",
        plus((None, 1)),
        [((None, 1), -1), ((3, 1), 1)],
        "k: None, v: 1",
    ),
    ("SELECT k, array(1, 2)[v] AS e FROM t", plus((1, 9)), minus((1, 9)), "v: 9"),
    (
        "SELECT k, sum(1 / v) OVER (PARTITION BY k) AS s FROM t",
        plus((1, 0)),
        minus((1, 0)),
        "v: 0",
    ),
    ("SELECT k, v FROM t ORDER BY 1 / v LIMIT 1", plus((1, 0)), minus((1, 0)), "TopK.*v: 0"),
    (
        "SELECT k FROM t UNION ALL SELECT 1 DIV v FROM t WHERE k > 1",
        plus((4, 2), (2, 0)),
        minus((2, 0)),
        r"operator Project .*v: 0",
    ),
]


def test_expressions_that_fail_and_their_repair(start: Start) -> None:
    history = start(t="k INT, v INT")
    history.create("whole", "SELECT count(*) AS c FROM t")
    for query, wrong, repair, words in one_of(3, FAILING):
        history.apply({"t": [*minus(*history.model.rows["t"]), *plus((1, 1), (2, 1))]})
        history.create("broken", query)
        fails_and_recovers(history, "broken", {"t": wrong}, {"t": repair}, words, times=1)
        history.drop("broken")


def test_a_row_that_fails_but_is_filtered_does_no_harm(start: Start) -> None:
    history = start(t="k INT, v INT", u="k INT, w INT")
    history.create("safe", "SELECT k, 10 / v AS q FROM t WHERE v <> 0")
    history.create("cased", "SELECT k, CASE WHEN v <> 0 THEN 10 / v END AS q FROM t")
    history.create("passing", "SELECT t.k, 10 / u.w AS q FROM t JOIN u ON t.k = u.k AND u.w <> 0")
    history.apply({"t": plus((1, 0), (2, 2)), "u": plus((1, 0), (1, 5), (2, 0))})
    history.apply({"t": plus((3, 0)), "u": minus((1, 0))})
    # What fails is gone before it is seen.
    history.write({"u": plus((2, 0))})
    history.write({"u": [((2, 0), -1)]})
    history.tick()


def test_a_view_that_cannot_be_filled_leaves_nothing(start: Start) -> None:
    history = start(t="k INT, v INT")
    history.apply({"t": plus((1, 0), (2, 2))})
    with pytest.raises(WindrowError):
        history.create("broken", "SELECT k, 10 / v AS q FROM t")
    history.apply({"t": minus((1, 0))})
    history.create("broken", "SELECT k, 10 / v AS q FROM t")
    history.apply({"t": plus((5, 5))})


# --- chains -----------------------------------------------------------------------------------


def test_views_over_views_over_views(start: Start) -> None:
    history = start(t="k INT, v INT", u="k INT, w INT")
    history.create("a", "SELECT k, sum(v) AS s, count(*) AS c FROM t GROUP BY k")
    history.create("b", "SELECT a.k, a.s, u.w FROM a LEFT JOIN u ON a.k = u.k WHERE a.c > 1")
    history.create("c", "SELECT w, max(s) AS m FROM b GROUP BY w")
    history.create("d", "SELECT c.m, a.k FROM c FULL JOIN a ON c.m = a.s")
    history.apply({"t": plus((1, 1), (1, 2), (2, 3)), "u": plus((1, 1))})
    history.apply({"t": plus((2, 0)), "u": plus((2, 1))})
    history.apply({"t": minus((1, 2)), "u": [*minus((2, 1)), *plus((2, None))]})
    # A sum that stays what it is stops a change from going further.
    history.apply({"t": [*minus((2, 3)), *plus((2, 2), (2, 1))]})
    history.create("e", "SELECT count(*) AS n FROM d")  # over views that have a past
    history.apply({"t": minus(*history.model.rows["t"])})


def test_the_same_query_twice(start: Start) -> None:
    history = start(t="k INT, v INT")
    query = "SELECT k, sum(v) AS s FROM t GROUP BY k"
    history.apply({"t": plus((1, 1))})
    history.create("one", query)
    history.create("two", query)
    history.apply({"t": plus((1, 2), (2, 2))})
    history.drop("one")
    history.apply({"t": minus((1, 1))})
    history.create("three", query)
    history.apply({"t": plus((3, 3))})


def test_a_view_that_is_dropped_and_made_again(start: Start) -> None:
    history = start(t="k INT, v INT")
    history.apply({"t": plus((1, 1), (2, 2))})
    history.create("v", "SELECT k, sum(v) AS s FROM t GROUP BY k")
    history.apply({"t": plus((1, 5))})
    history.drop("v")
    history.apply({"t": minus((2, 2))})
    history.create("v", "SELECT v, count(*) AS c FROM t GROUP BY v")
    history.apply({"t": plus((9, 5))})


def test_a_view_goes_on_in_a_project_opened_anew(start: Start, spark: Any, tmp_path: Path) -> None:
    history = start(t="k INT, v INT", u="k INT, w INT")
    history.create("g", f"SELECT k, {AGGREGATES} FROM t GROUP BY k")
    history.create("j", "SELECT t.v, u.w FROM t FULL JOIN u ON t.k = u.k")
    history.apply({"t": plus((1, 1), (2, 2)), "u": plus((1, 9))})
    history.write({"t": minus((1, 1))})
    history.project = windrow.Project(tmp_path / "project", spark=spark, progress=False)
    history.tick()
    history.apply({"t": plus((3, 3)), "u": [*minus((1, 9)), *plus((3, 4))]})


@pytest.mark.parametrize(
    "query",
    [
        # Spark numbers what it makes of these anew each time.
        "SELECT k, count_if(EXISTS (SELECT 1 FROM u WHERE u.k = t.k)) AS c FROM t GROUP BY k",
        "SELECT w, count(*) AS c FROM (SELECT concat(v, '#1', '#22') AS w FROM t) GROUP BY w",
        "SELECT b, count(v) AS c FROM VALUES (X'01', 1), (X'FF', 2) AS x(b, k) "
        "LEFT JOIN t ON t.k = x.k GROUP BY b",
        "SELECT k, transform(collect_set(v), x -> x + 1) AS c FROM t WHERE k > 7 GROUP BY k",
    ],
)
def test_a_plan_is_the_same_in_a_project_opened_anew(
    start: Start, spark: Any, tmp_path: Path, query: str
) -> None:
    history = start(t="k INT, v INT", u="k INT")
    history.create("view", query)
    history.apply({"t": plus((1, 1), (2, 2), (2, 2)), "u": plus((2,))})
    history.project = windrow.Project(tmp_path / "project", spark=spark, progress=False)
    history.apply({"t": [*minus((2, 2)), *plus((3, 3))], "u": plus((3,))})


def test_views_of_different_settings_share_nothing(start: Start) -> None:
    """The same text means something else in another time zone."""
    history = start(t="ts TIMESTAMP")
    days = "SELECT CAST({} AS DATE) AS day, count(*) AS c FROM t GROUP BY 1"
    history.create("here", days.format("ts"))
    history.project.sql("SET TIME ZONE 'Asia/Tokyo'")
    history.create("there", days.format("ts"), expected=days.format("ts + INTERVAL 9 HOURS"))
    night, noon = (dt.datetime(2024, 3, 1, hour, tzinfo=dt.UTC) for hour in (20, 12))
    history.apply({"t": plus((night,), (noon,), (noon,))})
    history.apply({"t": minus((noon,))})


def test_before_and_after_the_data(start: Start) -> None:
    history = start(t="k INT, v INT")
    query = "SELECT k, max(v) AS m, count(DISTINCT v) AS d FROM t GROUP BY k"
    history.create("early", query)
    history.apply({"t": plus((1, 1), (1, 2), (None, 3))})
    history.create("late", query + " ORDER BY k")
    history.apply({"t": minus((1, 2))})
    assert content(history, "early") == content(history, "late")


def test_statements_reach_views(start: Start) -> None:
    history = start(t="k INT, v INT", u="k INT, w INT")
    project, model = history.project, history.model
    history.create("g", "SELECT k, sum(v) AS s, count(*) AS c FROM t GROUP BY k")
    history.create("j", "SELECT t.k, t.v, u.w FROM t LEFT JOIN u ON t.k = u.k")

    def after(statement: str, batch: Any) -> None:
        project.sql(statement)
        model.apply(batch)
        history.steps.append((statement, batch))
        history.tick()

    after("INSERT INTO t VALUES (1, 1), (2, 2), (2, NULL)", {"t": plus((1, 1), (2, 2), (2, None))})
    after("INSERT INTO u SELECT k, count(*) FROM t GROUP BY k", {"u": plus((1, 1), (2, 2))})
    after(
        "UPDATE t SET v = v + 10, k = NULL WHERE k = 2",
        {"t": [*minus((2, 2), (2, None)), *plus((None, 12), (None, None))]},
    )
    after("DELETE FROM u WHERE k IN (SELECT k FROM t)", {"u": minus((1, 1))})
    after(
        """MERGE INTO t USING u ON t.k = u.k WHEN MATCHED THEN DELETE
           WHEN NOT MATCHED THEN INSERT (k, v) VALUES (u.k, u.w)
           WHEN NOT MATCHED BY SOURCE AND t.v = 1 THEN UPDATE SET v = 100""",
        {"t": [*plus((2, 2), (1, 100)), *minus((1, 1))]},
    )
    after("TRUNCATE TABLE t", {"t": minus((None, 12), (None, None), (2, 2), (1, 100))})


# --- types and floats --------------------------------------------------------------------------

EARLY = dt.datetime(1900, 1, 1, tzinfo=dt.UTC)
TYPED: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-1, 300],
    "INT": [2**31 - 1, 0],
    "BIGINT": [-(2**63), 1],
    "FLOAT": [0.0, -0.0, NAN, INF],
    "DOUBLE": [-0.0, 0.0, NAN, -INF, 0.1],
    "DECIMAL(10,2)": [Decimal("-1.50"), Decimal("99999999.99")],
    "DECIMAL(38,0)": [Decimal(10**37), Decimal(-1)],
    "DATE": [dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    "TIMESTAMP": [
        dt.datetime(1900, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2024, 1, 1, 0, 0, 0, 1, dt.UTC),
    ],
    "TIMESTAMP_NTZ": [dt.datetime(1900, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1)],
    "STRING": ["", "é", "longer than eight bytes", "longer than eight bytez"],
    "BINARY": [b"", b"\x00", b"\xff" * 9],
    "ARRAY<DOUBLE>": [[], [0.0], [-0.0], [NAN, None]],
    "STRUCT<a: INT, b: ARRAY<STRING>>": [{"a": 1, "b": None}, {"a": None, "b": ["", None]}],
}


def test_keys_of_every_type(start: Start) -> None:
    """Groups, joins, orders and distinct rows by a key of each type, NULL among its values."""
    names = {f"c{i}": (type_, values) for i, (type_, values) in enumerate(TYPED.items())}
    history = start(
        t="id INT, " + ", ".join(f"{name} {type_}" for name, (type_, _) in names.items())
    )
    for name in names:
        history.create(
            f"v_{name}",
            f"""SELECT a.{name} AS key, count(*) AS c, min(a.{name}) AS lo, sum(b.id) AS s
                FROM t a JOIN t b ON a.{name} <=> b.{name} GROUP BY a.{name}""",
        )
    history.create("d", f"SELECT DISTINCT {', '.join(names)} FROM t")
    history.create("top", f"SELECT * FROM t ORDER BY {', '.join([*names, 'id'])} LIMIT 5")
    rng = random.Random(0)
    rows = [
        (i % 7, *(rng.choice([None, *values]) for _, values in names.values())) for i in range(24)
    ]
    history.apply({"t": plus(*rows[:16])})
    history.apply({"t": [*minus(*rows[::3][:5]), *plus(*rows[16:])]})
    history.apply({"t": minus(*rows[1:16:3])})


def test_float_sums_do_not_drift(start: Start) -> None:
    """Large values that come and go leave nothing behind, however often."""
    history = start(t="k INT, x DOUBLE")
    history.create("g", "SELECT k, sum(x) AS s, avg(x) AS a FROM t GROUP BY k")
    history.create("whole", "SELECT sum(x) AS s, avg(x) AS a FROM t")
    rng = random.Random(1)
    stay = [(k, rng.uniform(0.1, 1.0)) for k in (1, 2) for _ in range(20)]
    history.write({"t": plus(*stay)})
    for step in range(6):
        passing = [(k, rng.uniform(1, 9) * 10.0**e) for k in (1, 2) for e in (3, 9, 16, 22)]
        moved = stay[step]
        stay[step] = (moved[0], rng.uniform(0.1, 1.0))
        history.write({"t": plus(*passing)})
        history.project.tick()
        history.write({"t": [*minus(*passing, moved), *plus(stay[step])]})
        history.project.tick()
        for key, total, average in content(history, "g"):
            values = [x for k, x in stay if k == key]
            assert math.isclose(total, math.fsum(values), rel_tol=1e-12)
            assert math.isclose(average, math.fsum(values) / len(values), rel_tol=1e-12)
        ((total, average),) = content(history, "whole")
        assert math.isclose(total, math.fsum(x for _, x in stay), rel_tol=1e-12)
        assert math.isclose(average, math.fsum(x for _, x in stay) / len(stay), rel_tol=1e-12)


def test_nan_and_infinity_leave_no_trace(start: Start) -> None:
    history = start(t="k INT, x DOUBLE, f FLOAT")
    history.create(
        "g",
        """SELECT k, sum(x) AS s, avg(x) AS a, min(x) AS lo, max(x) AS hi, stddev_pop(x) AS sd,
           corr(x, f) AS c, sum(f) AS f, count(DISTINCT x) AS d FROM t GROUP BY k""",
    )
    history.create("w", "SELECT k, x, sum(x) OVER (PARTITION BY k ORDER BY x) AS s FROM t")
    history.create("j", "SELECT a.k FROM t a JOIN t b ON a.x = b.x AND a.k < b.k")
    history.apply({"t": plus((1, 1.0, 0.5), (1, 2.0, 4.0), (2, 0.0, 1.0))})
    for value in (NAN, INF, -INF):
        history.apply({"t": plus((1, value, value), (2, value, None))})
        history.apply({"t": plus((1, -value, 0.0))})
        history.apply({"t": minus((1, value, value), (2, value, None), (1, -value, 0.0))})
    history.apply({"t": [*minus((2, 0.0, 1.0)), *plus((2, -0.0, 1.0))]})
    history.apply({"t": minus((2, 0.0, 1.0))})  # -0.0 is 0.0


def test_names_that_need_quotes(start: Start) -> None:
    history = start(t="`a b` INT, `sum(x)` INT, `ü.c` STRING, `order` INT")
    history.create("v", "SELECT `a b` AS `k,1`, sum(`sum(x)`), `ü.c` FROM t GROUP BY `a b`, `ü.c`")
    history.create("w", "SELECT `k,1` + 1, `sum(sum(x))` AS `group` FROM v WHERE `ü.c` <> 'x'")
    history.apply({"t": plus((1, 2, "y", 3), (1, 5, "y", 4), (2, 2, None, 1))})
    history.apply({"t": minus((1, 2, "y", 3))})
