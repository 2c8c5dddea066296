"""INSERT, UPDATE, DELETE and MERGE beside a plain list of rows; atomicity; two handles."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from asking import ask, rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as hs

import windrow as wr
from windrow.errors import (
    CommitConflictError,
    DataError,
    RelationNotFoundError,
    SchemaError,
    SQLError,
    WindrowError,
)
from windrow.views.tables import writing


def version(project: wr.Project) -> int:
    history = project._statements.history
    history.refresh()
    return history.version


# INSERT


def test_insert(project: wr.Project) -> None:
    project.sql("CREATE TABLE t (a INT, b STRING DEFAULT 'dd', c DOUBLE)")
    project.sql("INSERT INTO t VALUES (1, 'x', 0.5), (1, 'x', 0.5)")
    project.sql("INSERT INTO t VALUES (2, DEFAULT, NULL)")
    project.sql("INSERT INTO t (C, a) VALUES (3, 3)")
    project.sql("INSERT INTO t BY NAME SELECT 4 AS a, 'n' AS b")
    project.sql(
        "WITH q AS (SELECT a + 4 AS a FROM t WHERE a = 1) INSERT INTO t (a) SELECT * FROM q"
    )
    assert ask(project, "SELECT * FROM t") == [
        (1, "x", 0.5),
        (1, "x", 0.5),
        (2, "dd", None),
        (3, "dd", 3.0),
        (4, "n", None),
        (5, "dd", None),
        (5, "dd", None),
    ]
    project.sql("INSERT INTO t SELECT * FROM t WHERE a = 1")  # sees what was there before
    assert ask(project, "SELECT count(*) FROM t WHERE a = 1") == [(4,)]
    project.sql("INSERT OVERWRITE t SELECT a, 'o', c FROM t WHERE a = 2")
    assert ask(project, "SELECT * FROM t") == [(2, "o", None)]
    project.sql("INSERT OVERWRITE t VALUES (7, 'v', 7)")
    assert ask(project, "SELECT * FROM t") == [(7, "v", 7.0)]
    project.sql("TRUNCATE TABLE t")
    assert ask(project, "SELECT * FROM t") == []


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("INSERT INTO t VALUES (1)", SQLError, "NOT_ENOUGH_DATA_COLUMNS"),
        ("INSERT INTO t VALUES (1, 'x', 3)", SQLError, "TOO_MANY_DATA_COLUMNS"),
        ("INSERT INTO t VALUES ('x', 'x')", SQLError, "CANNOT_SAFELY_CAST"),
        ("INSERT INTO t VALUES (99999999999, 'x')", DataError, "CAST_OVERFLOW_IN_TABLE_INSERT"),
        ("INSERT INTO t VALUES (NULL, 'x')", DataError, "'a' is NOT NULL, .* 'b': 'x'"),
        ("INSERT INTO t SELECT NULL, b FROM t", DataError, "'a' is NOT NULL, .* {null, one}"),
        ("INSERT INTO t (b) VALUES ('x')", DataError, "'a' is NOT NULL"),
        ("INSERT INTO t (a, z) VALUES (1, 2)", SchemaError, "no column 'z'"),
        ("INSERT INTO t (a, A) VALUES (1, 2)", SQLError, "lists a column twice"),
        ("INSERT INTO t (a) VALUES (1, 2)", SQLError, "lists 1 columns .* there are 2 values"),
        ("INSERT INTO t BY NAME SELECT 1 AS a, 2 AS z", SchemaError, "no column 'z'"),
        ("INSERT INTO nosuch VALUES (1)", RelationNotFoundError, "no table"),
        ("INSERT INTO v VALUES (1)", RelationNotFoundError, "only tables can be changed"),
        ("UPDATE t SET a = 'x'", SQLError, "CANNOT_SAFELY_CAST"),
        ("UPDATE t SET a = NULL", DataError, "'a' is NOT NULL"),
        ("UPDATE t SET a = 1, A = 2", SQLError, "a is assigned twice|A is assigned twice"),
        ("UPDATE t SET z = 1", SchemaError, "no column 'z'"),
        ("UPDATE t SET b = 'x' WHERE a / 0 > 1", DataError, "DIVIDE_BY_ZERO"),
        ("UPDATE t SET a = (SELECT a FROM t)", WindrowError, "SCALAR_SUBQUERY_TOO_MANY_ROWS"),
        ("DELETE FROM t WHERE z = 1", SQLError, "UNRESOLVED_COLUMN"),
        ("DELETE FROM v WHERE a = 1", RelationNotFoundError, "only tables can be changed"),
        ("DELETE FROM t WHERE a", SQLError, "DATATYPE_MISMATCH"),
    ],
)
def test_a_statement_that_fails_leaves_nothing(
    failing: wr.Project, text: str, error: type[WindrowError], said: str
) -> None:
    before = version(failing)
    with pytest.raises(error, match=said):
        failing.sql(text)
    assert version(failing) == before


@pytest.fixture(scope="module")
def failing(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> wr.Project:
    """A project whose statements fail: they leave it as it is."""
    project = wr.Project(tmp_path_factory.mktemp("failing"), spark=spark)
    project.sql("CREATE TABLE t (a INT NOT NULL, b STRING)")
    project.sql("INSERT INTO t VALUES (1, 'one'), (2, 'one')")
    project.sql("CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
    return project


def test_after_all_that_failed(failing: wr.Project) -> None:
    assert ask(failing, "SELECT * FROM t") == [(1, "one"), (2, "one")]


# UPDATE and DELETE


def test_update(project: wr.Project) -> None:
    project.sql("CREATE TABLE t (a INT, b STRING DEFAULT 'd', s STRUCT<x: INT, y: STRING>)")
    project.sql(
        "INSERT INTO t VALUES (1, 'x', named_struct('x', 1, 'y', 'p')), (2, NULL, NULL), (2, NULL, "
        "NULL)"
    )
    project.sql("UPDATE t SET a = a + 10, b = concat(b, a) WHERE a = 1")
    assert ask(project, "SELECT a, b FROM t") == [(11, "x1"), (2, None), (2, None)]
    project.sql("UPDATE t AS q SET q.b = DEFAULT WHERE q.b IS NULL")
    assert ask(project, "SELECT a, b FROM t") == [(11, "x1"), (2, "d"), (2, "d")]
    project.sql("UPDATE t SET s.x = s.x + 1 WHERE a = 11")
    assert ask(project, "SELECT s.x, s.y FROM t WHERE a = 11") == [(2, "p")]
    project.sql("UPDATE t SET a = (SELECT max(a) FROM t) WHERE a IN (SELECT min(a) FROM t)")
    assert ask(project, "SELECT a FROM t") == [(11,), (11,), (11,)]
    project.sql("WITH m AS (SELECT 'x1' AS b) UPDATE t SET a = 0 WHERE b IN (SELECT b FROM m)")
    assert ask(project, "SELECT a FROM t") == [(0,), (11,), (11,)]


def test_an_update_that_changes_nothing_writes_nothing(project: wr.Project) -> None:
    project.sql("CREATE TABLE t AS SELECT 1 AS a")
    before = version(project)
    project.sql("UPDATE t SET a = a")
    project.sql("UPDATE t SET a = 5 WHERE a = 2")
    project.sql("DELETE FROM t WHERE a = 2")
    assert version(project) == before


def test_each_copy_of_a_row_is_a_row(project: wr.Project) -> None:
    """Values that differ each time differ between copies."""
    project.sql("CREATE TABLE t AS SELECT 0D AS a FROM range(20)")
    project.sql("UPDATE t SET a = rand()")
    assert ask(project, "SELECT count(*), count(DISTINCT a) FROM t") == [(20, 20)]


def test_delete(project: wr.Project) -> None:
    project.sql("CREATE TABLE t AS SELECT CAST(id % 5 AS INT) AS a FROM range(10)")
    project.sql("INSERT INTO t VALUES (NULL)")
    project.sql("DELETE FROM t WHERE a > 3")
    project.sql("DELETE FROM t AS x WHERE x.a = (SELECT min(a) FROM t)")
    project.sql("DELETE FROM t WHERE EXISTS (SELECT 1 FROM t y WHERE y.a = t.a + 2)")
    assert ask(project, "SELECT * FROM t") == [(2,), (2,), (3,), (3,), (None,)]
    project.sql("DELETE FROM t WHERE a NOT IN (SELECT a FROM t WHERE a = 2)")  # not the NULL
    assert ask(project, "SELECT * FROM t") == [(2,), (2,), (None,)]
    project.sql("DELETE FROM t")
    assert ask(project, "SELECT * FROM t") == []


def test_changes_read_views_as_they_are_by_then(project: wr.Project) -> None:
    project.sql("CREATE TABLE t AS SELECT 1 AS a")
    project.sql("CREATE MATERIALIZED VIEW v AS SELECT sum(a) AS s FROM t")
    project.sql("INSERT INTO t VALUES (10)")
    project.sql("INSERT INTO t SELECT CAST(s AS INT) FROM v")
    project.sql("UPDATE t SET a = 0 WHERE a IN (SELECT s / 2 FROM v)")
    assert ask(project, "SELECT * FROM t") == [(0,), (1,), (10,)]


# MERGE


def test_merge(project: wr.Project) -> None:
    project.sql("CREATE TABLE t (a INT NOT NULL, b STRING DEFAULT 'd', c BIGINT)")
    project.sql("INSERT INTO t VALUES (1, 'x', 10), (2, 'y', 20), (2, 'y', 20), (3, 'z', 30)")
    project.sql("CREATE TABLE u (c INT, A INT, b STRING)")
    project.sql("INSERT INTO u VALUES (1, 1, 'X'), (4, 4, 'W')")
    project.sql(
        "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN "
        "INSERT *"
    )
    both = [(2, "y", 20), (2, "y", 20)]
    assert ask(project, "SELECT * FROM t") == [(1, "X", 1), *both, (3, "z", 30), (4, "W", 4)]
    project.sql(
        """MERGE INTO t AS q USING (SELECT 2 AS a, 5 AS k UNION ALL SELECT 9, 9) s ON q.a = s.a
           WHEN MATCHED AND s.k > 100 THEN DELETE
           WHEN MATCHED THEN UPDATE SET c = q.c + s.k, q.b = DEFAULT
           WHEN NOT MATCHED AND s.k > 100 THEN INSERT (a) VALUES (s.k)
           WHEN NOT MATCHED THEN INSERT (c, a) VALUES (s.k + 1, s.a)
           WHEN NOT MATCHED BY SOURCE AND q.a = 3 THEN DELETE
           WHEN NOT MATCHED BY SOURCE AND q.a = 4 THEN UPDATE SET c = -1"""
    )
    both = [(2, "d", 25), (2, "d", 25)]
    assert ask(project, "SELECT * FROM t") == [(1, "X", 1), *both, (4, "W", -1), (9, "d", 10)]


def test_a_row_that_several_would_change(project: wr.Project) -> None:
    project.sql("CREATE TABLE t AS SELECT 1 AS a, 1 AS c")
    twice = "(SELECT * FROM VALUES (1, 1), (1, 2) AS q(a, k)) s ON t.a = s.a"
    before = version(project)
    with pytest.raises(SQLError, match="MERGE_CARDINALITY_VIOLATION") as found:
        project.sql(f"MERGE INTO t USING {twice} WHEN MATCHED THEN UPDATE SET c = k")
    assert found.value.condition == "MERGE_CARDINALITY_VIOLATION"
    assert version(project) == before
    # Of several that match, one acts.
    project.sql(f"MERGE INTO t USING {twice} WHEN MATCHED AND k = 2 THEN UPDATE SET c = k")
    assert ask(project, "SELECT * FROM t") == [(1, 2)]
    # Deleting twice is deleting.
    project.sql(f"MERGE INTO t USING {twice} WHEN MATCHED THEN DELETE")
    assert ask(project, "SELECT * FROM t") == []


def test_merge_with_itself_subqueries_and_ctes(project: wr.Project) -> None:
    project.sql("CREATE TABLE t AS SELECT CAST(id AS INT) AS a, CAST(id AS INT) AS c FROM range(3)")
    project.sql(
        "WITH w AS (SELECT a + 1 AS a, c FROM t) MERGE INTO t USING w ON t.a = w.a WHEN MATCHED "
        "THEN UPDATE SET c = w.c + (SELECT max(a) FROM t) WHEN NOT MATCHED THEN INSERT *"
    )
    assert ask(project, "SELECT * FROM t") == [(0, 0), (1, 2), (2, 3), (3, 2)]
    project.sql(
        "MERGE INTO t USING t s ON t.a = s.a AND t.a IN (SELECT c FROM t) WHEN MATCHED THEN DELETE"
    )
    assert ask(project, "SELECT * FROM t") == [(1, 2)]


def test_actions_that_are_not_taken_are_not_evaluated(project: wr.Project) -> None:
    project.sql("CREATE TABLE t AS SELECT CAST(id AS INT) AS a FROM range(2)")
    project.sql(
        "MERGE INTO t USING (SELECT 0 AS a) s ON t.a >= s.a WHEN MATCHED AND t.a = 0 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET a = CAST(10 / t.a AS INT)"
    )
    assert ask(project, "SELECT * FROM t") == [(10,)]


@pytest.mark.parametrize(
    ("clause", "error", "said"),
    [
        ("WHEN NOT MATCHED THEN INSERT (a) VALUES (t.a)", SQLError, "UNRESOLVED_COLUMN"),
        ("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = s.a", SQLError, "UNRESOLVED_COLUMN"),
        ("WHEN NOT MATCHED THEN INSERT *", SQLError, "it has no 'b'"),
        ("WHEN NOT MATCHED THEN INSERT (b) VALUES ('x')", DataError, "'a' is NOT NULL"),
        ("WHEN MATCHED THEN UPDATE SET a = NULL", DataError, "'a' is NOT NULL"),
        ("WHEN MATCHED THEN UPDATE SET z = 1", SchemaError, "no column 'z'"),
        ("WHEN MATCHED THEN UPDATE SET a = 'x'", SQLError, "CANNOT_SAFELY_CAST"),
    ],
)
def test_merges_that_fail(
    failing: wr.Project, clause: str, error: type[WindrowError], said: str
) -> None:
    before = version(failing)
    source = "(SELECT * FROM VALUES (1), (7) AS q(a)) s"
    with pytest.raises(error, match=said):
        failing.sql(f"MERGE INTO t USING {source} ON t.a = s.a {clause}")
    assert version(failing) == before


# Histories beside a plain list

Row = tuple[int | None, str | None]
NUMBERS = hs.one_of(hs.none(), hs.integers(0, 3))
LETTERS = hs.sampled_from([None, "x", "y"])
ROWS = hs.lists(hs.tuples(NUMBERS, LETTERS), min_size=1, max_size=4)
CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "a > 1": lambda r: r[0] is not None and r[0] > 1,
    "a IS NULL": lambda r: r[0] is None,
    "b = 'x'": lambda r: r[1] == "x",
    "NOT (a = 2)": lambda r: r[0] is not None and r[0] != 2,
    "a = 0 OR b IS NULL": lambda r: r[0] == 0 or r[1] is None,
}
VALUES: dict[str, Callable[[Row], Row]] = {
    "a = a + 1": lambda r: (None if r[0] is None else r[0] + 1, r[1]),
    "b = DEFAULT": lambda r: (r[0], "d"),
    "a = NULL, b = upper(b)": lambda r: (None, None if r[1] is None else r[1].upper()),
    "b = CAST(a AS STRING)": lambda r: (r[0], None if r[0] is None else str(r[0])),
}


def literal(value: Any) -> str:
    return "NULL" if value is None else repr(value)


def listed(found: list[Row]) -> str:
    return ", ".join(f"({literal(a)}, {literal(b)})" for a, b in found)


@dataclass(frozen=True)
class Step:
    """A statement, and what it does to a list of rows."""

    text: str
    run: Callable[[list[Row]], list[Row]]

    def __repr__(self) -> str:
        return self.text


@hs.composite
def steps(draw: Any) -> Step:
    kind = draw(hs.sampled_from(["insert", "update", "delete", "merge", "select", "overwrite"]))
    condition = draw(hs.sampled_from(sorted(CONDITIONS)))
    holds = CONDITIONS[condition]
    value = draw(hs.sampled_from(sorted(VALUES)))
    changed = VALUES[value]
    given = draw(ROWS)
    match kind:
        case "insert":
            return Step(f"INSERT INTO t VALUES {listed(given)}", lambda t: t + given)
        case "select":
            return Step(
                f"INSERT INTO t SELECT a, b FROM t WHERE {condition}",
                lambda t: (t + [r for r in t if holds(r)])[:40],
            )
        case "overwrite":
            return Step(
                f"INSERT OVERWRITE t SELECT a, b FROM t WHERE {condition}",
                lambda t: [r for r in t if holds(r)],
            )
        case "update":
            return Step(
                f"UPDATE t SET {value} WHERE {condition}",
                lambda t: [changed(r) if holds(r) else r for r in t],
            )
        case "delete":
            return Step(
                f"DELETE FROM t WHERE {condition}", lambda t: [r for r in t if not holds(r)]
            )
    source = sorted({r[0]: r for r in given if r[0] is not None}.values())
    return merge_step(source, condition, value)


def merge_step(source: list[tuple[int, str | None]], condition: str, value: str) -> Step:
    """Sources have each key once."""
    by_key = dict(source)
    holds, changed = CONDITIONS[condition], VALUES[value]
    qualified = condition.replace("a ", "t.a ").replace("b ", "t.b ")

    def run(table: list[Row]) -> list[Row]:
        found: list[Row] = []
        for row in table:
            if row[0] in by_key:
                if holds(row):
                    continue
                found.append((row[0], by_key[row[0]]))
            else:
                found.append(changed(row) if holds(row) else row)
        keys = {row[0] for row in table}
        return found + [(a, b) for a, b in source if a not in keys]

    values = listed(list(source)) or "(NULL, NULL)"
    assigned = value.replace("a + 1", "t.a + 1").replace("(a ", "(t.a ").replace("(b)", "(t.b)")
    return Step(
        f"MERGE INTO t USING (SELECT CAST(a AS INT) AS a, CAST(b AS STRING) AS b "
        f"FROM VALUES {values} AS q(a, b) WHERE a IS NOT NULL) s ON t.a = s.a "
        f"WHEN MATCHED AND {qualified} THEN DELETE WHEN MATCHED THEN UPDATE SET b = s.b "
        f"WHEN NOT MATCHED THEN INSERT * "
        f"WHEN NOT MATCHED BY SOURCE AND {qualified} THEN UPDATE SET {assigned}",
        run,
    )


@given(history=hs.lists(steps(), min_size=1, max_size=5))
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_histories_are_those_of_a_list(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, history: list[Step]
) -> None:
    project = wr.Project(tmp_path_factory.mktemp("history"), spark=spark)
    project.sql("CREATE TABLE t (a INT, b STRING DEFAULT 'd')")
    start: list[Row] = [(0, "x"), (1, "y"), (1, "y"), (2, None), (None, "x")]
    project.sql(f"INSERT INTO t VALUES {listed(start)}")
    states = {project._statements.history.time: start}
    table = start
    for step in history:
        expected = step.run(table)
        if len(expected) >= 40:
            break
        project.sql(step.text)
        table = expected
        states[project._statements.history.time] = table
        assert rows(project.read("t")) == sorted(table, key=repr), step
    for time, state in states.items():  # and all that was, is still there
        assert rows(project.read("t", time)) == sorted(state, key=repr)


# Two handles


def test_two_handles_see_each_other(spark: Any, tmp_path: Path) -> None:
    one, two = (wr.Project(tmp_path / "state", spark=spark) for _ in range(2))
    one.sql("CREATE TABLE t (a INT)")
    two.sql("INSERT INTO t VALUES (1)")
    one.sql("INSERT INTO t VALUES (2)")
    assert ask(two, "SELECT * FROM t") == ask(one, "SELECT * FROM t") == [(1,), (2,)]
    two.sql("DROP TABLE t")
    with pytest.raises(RelationNotFoundError):
        one.sql("INSERT INTO t VALUES (3)")


def between(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any], times: int = 1
) -> Callable[[], int]:
    """Has something happen while the next statements are between writing and committing."""
    write = writing.write
    left = times

    def meddled(*arguments: Any) -> Any:
        nonlocal left
        found = write(*arguments)
        if left > 0:
            left -= 1
            monkeypatch.setattr(writing, "write", write)
            act()
            monkeypatch.setattr(writing, "write", meddled)
        return found

    monkeypatch.setattr(writing, "write", meddled)
    return lambda: left


def test_a_statement_that_others_overtake_is_run_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (wr.Project(tmp_path / "state", spark=spark) for _ in range(2))
    one.sql("CREATE TABLE t AS SELECT 1 AS a")
    left = between(monkeypatch, lambda: two.sql("INSERT INTO t VALUES (5)"))
    one.sql("UPDATE t SET a = a + 1")
    assert left() == 0
    assert ask(two, "SELECT * FROM t") == [(2,), (6,)]


def test_a_table_that_is_dropped_meanwhile(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (wr.Project(tmp_path / "state", spark=spark) for _ in range(2))
    one.sql("CREATE TABLE t AS SELECT 1 AS a")
    between(monkeypatch, lambda: two.sql("DROP TABLE t"))
    with pytest.raises(RelationNotFoundError, match="there is no table"):
        one.sql("INSERT INTO t VALUES (2)")


def test_a_statement_that_never_gets_its_turn(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (wr.Project(tmp_path / "state", spark=spark) for _ in range(2))
    monkeypatch.setattr(writing.time, "sleep", lambda seconds: None)
    one.sql("CREATE TABLE t (a INT)")
    between(monkeypatch, lambda: two.sql("INSERT INTO t VALUES (1)"), times=100)
    with pytest.raises(CommitConflictError, match=r"10 times in a row.*Run it again"):
        one.sql("INSERT INTO t VALUES (2)")
    assert ask(one, "SELECT DISTINCT a FROM t") == [(1,)]


def test_many_threads_write_at_once(spark: Any, tmp_path: Path) -> None:
    wr.Project(tmp_path / "state", spark=spark).sql("CREATE TABLE t (a INT)")
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            project = wr.Project(tmp_path / "state", spark=spark)
            for i in range(4):
                project.table("t").insert([{"a": number * 10 + i}])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    project = wr.Project(tmp_path / "state", spark=spark)
    assert rows(project.read("t")) == sorted(
        ((number * 10 + i,) for number in range(3) for i in range(4)), key=repr
    )
