"""Joins: every plan of a join against Spark, what they keep, and what views share.

Each query is maintained by delta paths and by a chain with intermediate results, some of them also
with inputs that no other view shares. In the histories several inputs change in one tick, keys are
NULL, rows repeat, and tables are emptied and filled again.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from view_cases import one_of
from view_oracle import History, View
from view_tables import TABLES, SharedRows, batches, first_rows

import windrow
from windrow.errors import OptionError

QUERIES = {
    # A chain, with a filter and a computed column between the joins.
    "chain": """
        SELECT t.id, a.w, b.w AS bw, t.n + b.w AS z
        FROM t JOIN u a ON t.k = a.k JOIN u b ON a.g = b.g WHERE t.n > 0 AND a.w < b.w + 5
    """,
    # One relation three times; all three change together.
    "self": """
        SELECT a.id, b.n, c.g FROM t a JOIN t b ON a.k = b.k JOIN t c ON b.n = c.n
        WHERE a.id < 4 AND c.id < 6
    """,
    # A circle of equalities: one of them is evaluated by Spark.
    "circle": """
        SELECT t.id, u.w, v FROM t JOIN u ON t.k = u.k JOIN nums ON u.w = nums.v AND t.n = nums.v
    """,
    "cross": """
        SELECT t.id, u.w, v FROM t JOIN u ON t.k = u.k CROSS JOIN nums WHERE v > 2 AND t.n < v
    """,
    "null_safe": """
        SELECT a.id, b.w, c.w AS cw FROM t a JOIN u b ON a.k <=> b.k JOIN u c ON b.g = c.g
    """,
    # Keys that are computed, and one that two columns have to equal.
    "computed": """
        SELECT t.id, a.w, b.day FROM t JOIN u a ON t.k + 1 = a.k AND t.n = a.k
        JOIN u b ON upper(a.g) = upper(b.g)
    """,
    # The output of a reduction, by its groups, and by something else.
    "reduced": """
        SELECT t.id, s.c, s.m, u.w
        FROM t JOIN (SELECT k, count(*) AS c, avg(d) AS m, max(n) AS x FROM t GROUP BY k
                     HAVING count(*) > 1) s ON t.k = s.k
        JOIN u ON u.k = s.k
    """,
    "reduced_value": """
        SELECT t.id, s.k, u.w FROM t JOIN (SELECT k, max(n) AS x FROM t GROUP BY k) s ON t.n = s.x
        JOIN u ON u.k = s.k
    """,
    # Over an outer join, and beneath one.
    "outer": """
        SELECT x.id, x.w, nums.v, y.label
        FROM (SELECT t.id, t.n, u.w FROM t LEFT JOIN u ON t.k = u.k AND u.w > 1) x
        JOIN nums ON x.n = nums.v LEFT JOIN u y ON y.k = nums.v
    """,
    "semi": """
        SELECT t.id FROM t JOIN u ON t.k = u.k
        WHERE EXISTS (SELECT 1 FROM nums WHERE nums.v = t.n AND nums.v > 1)
          AND t.k NOT IN (SELECT k FROM t WHERE k IS NOT NULL GROUP BY k HAVING count(*) > 3)
    """,
}
PLANS = {"delta": "'join' = 'delta'", "linear": "'join' = 'linear'", "own": "'arrange' = 'own'"}
OWN = ("chain", "reduced", "outer")  # also with inputs that nobody shares
EXCHANGED = ("chain", "reduced")


def start(spark: Any, folder: Path, names: Any) -> History:
    project = windrow.Project(folder, spark=spark, progress=False)
    history = History.start(project, spark, TABLES)
    for name in names:
        for plan, properties in PLANS.items():
            if plan == "own" and name not in OWN:
                continue
            view = f"{name}_{plan}"
            project.sql(
                f"CREATE MATERIALIZED VIEW {view} TBLPROPERTIES ({properties}) AS {QUERIES[name]}"
            )
            history.views[view] = View(view, QUERIES[name])
    return history


@pytest.mark.parametrize("large", [False, True], ids=["one task", "exchanged"])
def test_all_plans_equal_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    from windrow.views.engine import ticker

    if large:
        monkeypatch.setattr(ticker, "LARGE", 0)
    rows = SharedRows(random.Random(11))
    history = start(spark, tmp_path, one_of(2, EXCHANGED) if large else one_of(3, QUERIES))
    history.write(first_rows(rows))
    history.tick()
    for what, batch in batches(history.model, rows):
        history.write(batch, what)
        history.tick()


def shop(spark: Any, folder: Path) -> windrow.Project:
    project = windrow.Project(folder, spark=spark, progress=False)
    project.sql("CREATE TABLE watched (id INT)")
    project.sql("CREATE TABLE items (id INT, maker INT, name STRING, price INT, PRIMARY KEY (id))")
    project.sql("CREATE TABLE makers (id INT, country INT, PRIMARY KEY (id))")
    project.sql("INSERT INTO watched VALUES (1), (3)")
    project.sql("INSERT INTO items SELECT id, id % 10, 'item', 5 FROM range(100)")
    project.sql("INSERT INTO makers SELECT id, id % 3 FROM range(10)")
    return project


WATCHED = """
SELECT w.id, i.name, m.country FROM watched w JOIN items i ON w.id = i.id
JOIN makers m ON i.maker = m.id
"""
CHOICES = {
    "few rows meet large relations by their primary keys": ("", WATCHED),
    "forced to delta": ("TBLPROPERTIES ('join' = 'delta')", WATCHED),
    "forced to linear": ("TBLPROPERTIES ('join' = 'linear')", WATCHED),
    "nothing shared": ("TBLPROPERTIES ('arrange' = 'own', 'join' = 'delta')", WATCHED),
    "nothing to choose between two": (
        "",
        "SELECT w.id, i.name FROM watched w JOIN items i ON w.id = i.id WHERE i.price > 3",
    ),
    "without keys to go by": (
        "",
        "SELECT i.id, m.country, w.id AS v FROM items i JOIN makers m ON i.maker = m.country "
        "JOIN watched w ON i.price = w.id",
    ),
    "by the groups of a reduction": (
        "",
        "SELECT i.id, s.n FROM items i JOIN (SELECT maker, count(*) AS n FROM items GROUP BY maker)"
        " s ON i.maker = s.maker WHERE s.n > 1",
    ),
    "a semi join by the groups of a reduction": (
        "",
        "SELECT m.id FROM makers m WHERE m.id IN (SELECT maker FROM items GROUP BY maker "
        "HAVING sum(price) > 30)",
    ),
    "an outer join": (
        "",
        "SELECT m.id, i.name FROM makers m LEFT JOIN items i ON m.id = i.maker AND i.price > 3 "
        "WHERE m.country = 1",
    ),
}


def test_choices(spark: Any, tmp_path: Path) -> None:
    """Golden plans of joins; written with WINDROW_WRITE_PLANS=1, to be read."""
    project = shop(spark, tmp_path)
    texts = []
    for name, (properties, query) in CHOICES.items():
        frame = project.sql(f"EXPLAIN CREATE MATERIALIZED VIEW v {properties} AS {query}")
        assert frame is not None
        texts.append(f"-- {name}\n{frame.collect()[0][0]}\n")
    # Once what it looks up is there, a delta join keeps nothing more.
    project.sql(f"CREATE MATERIALIZED VIEW v TBLPROPERTIES ('join' = 'delta') AS {WATCHED}")
    frame = project.sql(f"EXPLAIN CREATE MATERIALIZED VIEW w AS {WATCHED}")
    assert frame is not None
    texts.append(f"-- all of it is there\n{frame.collect()[0][0]}\n")
    found = "\n".join(texts)
    path = Path(__file__).parent / "plans_of_joins.txt"
    if os.environ.get("WINDROW_WRITE_PLANS"):
        path.write_text(found)
    assert found == path.read_text()
    with pytest.raises(OptionError, match="'linear', 'delta' or 'auto'"):
        project.sql(f"CREATE MATERIALIZED VIEW x TBLPROPERTIES ('join' = 'star') AS {WATCHED}")


def test_views_share_the_rows_of_relations(spark: Any, tmp_path: Path) -> None:
    project = shop(spark, tmp_path)
    history = project._statements.history

    def kept(view: str) -> set[str]:
        return set(history.catalogue[view]["arrangements"].values())

    def columns(id: str) -> list[str]:
        return list(history.collection(id).spec.schema.names)

    names = "SELECT w.id, i.name FROM watched w JOIN items i ON w.id = i.id"
    project.sql(f"CREATE MATERIALIZED VIEW names AS {names}")
    narrow = kept("names")
    assert sorted(map(columns, narrow)) == [["id"], ["id", "name"]]
    # Another one needs other columns by the same key: one wider collection serves both.
    prices = "SELECT w.id, i.price FROM watched w JOIN items i ON w.id = i.id WHERE i.maker > 0"
    project.sql(f"CREATE MATERIALIZED VIEW prices AS {prices}")
    assert kept("names") == kept("prices")
    assert sorted(map(columns, kept("names"))) == [["id"], ["id", "maker", "name", "price"]]
    assert narrow - kept("names")
    assert not (narrow - kept("names")) & set(history.collections())
    project.sql("INSERT INTO watched VALUES (5), (10)")
    project.sql("UPDATE items SET name = 'new', price = 7 WHERE id IN (1, 5)")
    project.tick()
    assert sorted(map(tuple, project.read("names").collect())) == [
        (1, "new"),
        (3, "item"),
        (5, "new"),
        (10, "item"),
    ]
    assert sorted(map(tuple, project.read("prices").collect())) == [(1, 7), (3, 5), (5, 7)]
    # A third one finds all that it needs: nothing is kept beside its own rows.
    before = set(history.collections())
    project.sql(
        "CREATE MATERIALIZED VIEW makers_of TBLPROPERTIES ('join' = 'delta') AS "
        "SELECT w.id, i.maker FROM watched w JOIN items i ON i.id = w.id"
    )
    assert len(set(history.collections()) - before) == 1
    project.sql("DROP MATERIALIZED VIEW names")
    project.sql("DROP MATERIALIZED VIEW makers_of")
    project.sql("DELETE FROM watched WHERE id = 3")
    project.tick()
    assert sorted(map(tuple, project.read("prices").collect())) == [(1, 7), (5, 7)]
    project.sql("DROP MATERIALIZED VIEW prices")
    assert len(history.collections()) == 3  # the tables


def test_a_view_that_is_rebuilt_shares_again(spark: Any, tmp_path: Path) -> None:
    project = shop(spark, tmp_path)
    history = project._statements.history
    for name, column in (("a", "name"), ("b", "price")):
        project.sql(
            f"CREATE MATERIALIZED VIEW {name} AS "
            f"SELECT w.id, i.{column} FROM watched w JOIN items i ON w.id = i.id"
        )
    project.sql("INSERT INTO watched VALUES (7)")
    project.sql("REFRESH MATERIALIZED VIEW a")
    project.sql("INSERT INTO watched VALUES (8)")
    project.tick()
    assert history.catalogue["a"]["arrangements"] == history.catalogue["b"]["arrangements"]
    for name in ("a", "b"):
        assert sorted(row.id for row in project.read(name).collect()) == [1, 3, 7, 8]
