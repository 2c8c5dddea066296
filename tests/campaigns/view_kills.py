"""Statements and ticks on a project with views, whose driver, JVM or tasks are killed.

A driver runs one statement after the other; after each, it says so. After a kill, the project is
opened by another process: what was acknowledged is there once, the statement that was under way
entirely or not at all, and after a tick each view is what Spark makes of its query over the tables.
Then the next driver goes on where the last one ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "cluster"), str(TESTS / "views")]

import psutil  # noqa: E402
from cluster_processes import JAVA_OPTIONS, _end_with_parent, runs  # noqa: E402
from view_oracle import Model, Row, differences  # noqa: E402

import windrow  # noqa: E402
from windrow.storage.leases import live_leases  # noqa: E402
from windrow.storage.store import Store  # noqa: E402
from windrow.views.verify import verify_history  # noqa: E402

TABLES = {
    "orders": "id INT, customer INT, amount INT, stamp INT",
    "customers": "id INT, city STRING, stamp INT",
}
VIEWS = {  # in an order in which they can be created
    "totals": "SELECT customer, count(*) AS n, sum(amount) AS amount FROM orders GROUP BY customer",
    "joined": "SELECT c.id, city, o.id AS order_id, amount, o.stamp "
    "FROM customers c LEFT JOIN orders o ON c.id = o.customer",
    "largest": "SELECT * FROM orders ORDER BY amount DESC, id, customer, stamp LIMIT 5",
    "kinds": "SELECT DISTINCT customer, amount % 3 AS kind FROM orders",
    "ranked": "SELECT id, customer, rank() OVER (PARTITION BY customer ORDER BY amount) AS place, "
    "sum(amount) OVER (PARTITION BY customer) AS total FROM orders",
    "cities": "SELECT city, count(order_id) AS n, sum(amount) AS amount, max(id) AS newest "
    "FROM joined GROUP BY city",
}
NEEDS = {"cities": "joined"}
CITIES = ("Bern", "Oslo", "Rome")
CUSTOMERS, MOST_ROWS = 8, 80
STATEMENTS = {
    "insert": 24,
    "update": 14,
    "delete": 10,
    "merge": 12,
    "tick": 24,
    "create": 20,
    "drop": 5,
    "refresh": 5,
}
HOW = ("driver", "driver", "step", "step", "jvm", "worker")
MOST_SECONDS = 14.0  # from the first statement of a driver to its end
MOST_STEPS = 60
FRESH = 3  # each so many checks, the project is opened anew; else by a handle that has lived on
DEADLINE_SECONDS = 240


@dataclass
class Expected:
    """What the project holds: the rows of its tables, and its views."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in TABLES})
    views: frozenset[str] = frozenset()


@dataclass
class Statement:
    """Something to do, and what the project holds after it. The text of a tick is None."""

    kind: str
    sql: str | None
    after: Expected


class Generator:
    """Chooses statements. The number of each is in the rows that it writes."""

    def __init__(self, seed: int) -> None:
        self._pick, self._count = random.Random(seed), 0

    def next(self, now: Expected) -> Statement:
        self._count += 1
        missing = [v for v in VIEWS if v not in now.views and NEEDS.get(v, v) in {v, *now.views}]
        used = {NEEDS[view] for view in now.views if view in NEEDS}
        weights = dict(STATEMENTS)
        if not missing:
            weights["create"] = 0
        if not now.views:
            weights["drop"] = weights["refresh"] = 0
        kind = self._pick.choices(list(weights), list(weights.values()))[0]
        match kind:
            case "tick":
                return Statement(kind, None, now)
            case "create":
                view = self._pick.choice(missing)
                after = Expected(now.rows, now.views | {view})
                text = f"CREATE MATERIALIZED VIEW {view} AS {VIEWS[view]}"
                return Statement(kind, text, after)
            case "drop":
                view = self._pick.choice(sorted(now.views - used))
                after = Expected(now.rows, now.views - {view})
                return Statement(kind, f"DROP MATERIALIZED VIEW {view}", after)
            case "refresh":
                view = self._pick.choice(sorted(now.views))  # with those that read it
                return Statement(kind, f"REFRESH MATERIALIZED VIEW {view}", now)
        table = self._pick.choice(("orders", "orders", "customers"))
        if len(now.rows[table]) > MOST_ROWS:
            kind = "delete"
        text, rows = getattr(self, f"_{kind}")(table, now.rows[table])
        return Statement(kind, text, Expected({**now.rows, table: rows}, now.views))

    def _row(self, table: str, id: int) -> Row:
        if table == "customers":
            return id, self._pick.choice(CITIES), self._count
        return id, self._pick.randrange(CUSTOMERS), self._pick.randrange(20), self._count

    def _insert(self, table: str, rows: list[Row]) -> tuple[str, list[Row]]:
        new = [self._row(table, self._id(table, i)) for i in range(self._pick.randrange(1, 5))]
        new += [new[0]] * (self._pick.random() < 0.2)  # the same row twice is two rows
        return f"INSERT INTO {table} VALUES {_values(new)}", rows + new

    def _update(self, table: str, rows: list[Row]) -> tuple[str, list[Row]]:
        number, (every, which) = self._count, self._some()
        where = f"stamp = {number} WHERE id % {every} = {which}"
        if table == "customers":
            city = self._pick.choice(CITIES)
            return (
                f"UPDATE customers SET city = '{city}', {where}",
                [(r[0], city, number) if r[0] % every == which else r for r in rows],
            )
        return (
            f"UPDATE orders SET amount = amount + 3, {where}",
            [(*r[:2], r[2] + 3, number) if r[0] % every == which else r for r in rows],
        )

    def _delete(self, table: str, rows: list[Row]) -> tuple[str, list[Row]]:
        every, which = self._some()
        text = f"DELETE FROM {table} WHERE id % {every} = {which}"
        return text, [row for row in rows if row[0] % every != which]

    def _merge(self, table: str, rows: list[Row]) -> tuple[str, list[Row]]:
        """Of the rows that match, some are deleted, others replaced; the rest is inserted."""
        known = sorted({row[0] for row in rows})
        ids = {*self._pick.sample(known, min(len(known), 3)), self._id(table, 0)}
        new = {id: self._row(table, id) for id in sorted(ids)}
        columns = [one.split()[0] for one in TABLES[table].split(", ")]
        gone = {id for id in new if id % 3 == 0}
        text = (
            f"MERGE INTO {table} t USING (SELECT * FROM VALUES {_values(list(new.values()))} "
            f"AS v({', '.join(columns)})) AS s ON t.id = s.id "
            "WHEN MATCHED AND s.id % 3 = 0 THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        kept = [new.get(row[0], row) for row in rows if row[0] not in gone]
        return text, kept + [row for id, row in new.items() if id not in known]

    def _id(self, table: str, more: int) -> int:
        # Few customers, so that orders find them; of orders, each has a number of its own.
        return (self._count + more) % CUSTOMERS if table == "customers" else self._count * 8 + more

    def _some(self) -> tuple[int, int]:
        every = self._pick.choice((2, 3, 5))
        return every, self._pick.randrange(every)


def _values(rows: list[Row]) -> str:
    return ", ".join("(" + ", ".join(map(repr, row)) + ")" for row in rows)


class Driver:
    """A driver with its JVM and its tasks."""

    def __init__(self, root: Path, log: Path) -> None:
        command = [sys.executable, str(Path(__file__).with_name("view_child.py")), str(root)]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": JAVA_OPTIONS},
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):  # closed; or a line that was cut short
            for line in self.process.stdout:
                self._answers.put(json.loads(line))
        self._answers.put(None)  # it has ended

    def ready(self) -> None:
        assert self.answer(DEADLINE_SECONDS) == {"ready": True}, "the driver did not start"

    def send(self, sql: str | None, kill_at: int | None) -> None:
        with contextlib.suppress(BrokenPipeError):  # then its answer is that it has ended
            print(json.dumps({"sql": sql, "kill_at": kill_at}), file=self.process.stdin, flush=True)

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """What it said; None if it has ended. Raises queue.Empty after some time."""
        return self._answers.get(timeout=max(seconds, 0.0))

    def kill(self, how: str, pick: random.Random) -> bool:
        """Kill one of its processes; False if there is none of this kind."""
        with contextlib.suppress(psutil.Error):
            leader = psutil.Process(self.process.pid)
            if how in ("driver", "step"):
                leader.kill()
                return True
            below = [(p, p.cmdline()) for p in leader.children(recursive=True)]
            names = ("java",) if how == "jvm" else ("windrow.worker", "pyspark.daemon")
            found = [p for p, words in below if any(n in w for n in names for w in words[:3])]
            if found:
                pick.choice(found).kill()
                return True
        return False

    def end(self) -> None:
        """End it and all that it started."""
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.Error):
                if os.getsid(pid) == self.process.pid and runs(pid):
                    psutil.Process(pid).kill()
        self.process.wait()


class Checker:
    """Looks at the project from a process, and with a session, that nobody kills."""

    def __init__(self, root: Path, spark: Any, counts: Counter[str]) -> None:
        self._root, self._spark, self._counts = root, spark, counts
        self._project = windrow.Project(root, spark=spark)
        for name, columns in TABLES.items():
            self._project.sql(f"CREATE TABLE {name} ({columns})")
        self._model = Model(spark, TABLES)
        self._checks = 0

    def check(self, now: Expected, under_way: Statement | None, swept: bool = True) -> Expected:
        """What there is: all that was acknowledged, and perhaps what was under way.

        `swept`: no other process is at work, so what dead ones left is removed first.
        """
        self._checks += 1
        if self._checks % FRESH == 0:
            self._project.close()
            self._project = windrow.Project(self._root, spark=self._spark)
        verified = verify_history(Store.at(self._root))
        assert verified is not None
        assert verified.is_sound, verified.problems
        now = self._found(now, under_way)
        for name, rows in now.rows.items():
            if rows != self._model.rows[name]:
                self._model.rows[name] = rows
                self._model._register(name)
        self._project.tick()
        for view in VIEWS:
            if view in now.views:
                wanted = self._model.answer(VIEWS[view])
                self._model.define(view, VIEWS[view])  # for those that read it
                assert not (wrong := differences(wanted, self._project.read(view))), (view, wrong)
                self._counts["views_compared"] += 1
        if swept:
            self._sweep()
        return now

    def _found(self, now: Expected, under_way: Statement | None) -> Expected:
        """Which of two states the project is in: without what was under way, or with it."""
        states = [now] if under_way is None else [now, under_way.after]
        rows = {name: Counter(map(tuple, self._project.read(name).collect())) for name in TABLES}
        listed = self._project.sql("SHOW VIEWS")
        assert listed is not None
        views = {name for name in VIEWS if name in {v for row in listed.collect() for v in row}}
        for state in states:
            wanted = {name: Counter(held) for name, held in state.rows.items()}
            if wanted == rows and state.views == views:
                if under_way is not None and now != under_way.after:
                    done = "committed" if state is not now else "not_committed"
                    self._counts[f"view_statements_{done}_unsaid"] += 1
                return state
        wrong = {
            name: (sorted(Counter(held) - rows[name]), sorted(rows[name] - Counter(held)))
            for name, held in now.rows.items()
        }
        raise AssertionError(
            f"neither before nor after {under_way and under_way.sql}: views {sorted(views)}, "
            f"expected {sorted(now.views)}; rows that are missing and too many: {wrong}"
        )

    def _sweep(self) -> None:
        """What is left over goes, and then there is nothing that nobody needs."""
        statements = self._project._statements
        removed = statements.views.sweep(hours=0)
        counts, history = self._counts, statements.history
        counts["view_left_most"] = max(counts["view_left_most"], len(removed))
        history.refresh()
        ids = set(history.collections())
        folders = Store.at(self._root / "collections").folders()
        assert set(folders) == ids, "collections that nobody knows, or that are gone"
        for id in ids:
            parts = sorted(part.path for part in history.collection(id).parts)
            files = Store.at(self._root / "collections" / id).names()
            assert files == parts, f"{id}: {set(files) ^ set(parts)}"
        at_work = Store.at(self._root / "tmp").folders()
        assert len(at_work) <= 1, f"folders of dead processes: {at_work}"  # one is this process's
        leases = Store.at(self._root / "history" / "leases")
        assert len(leases.names()) == len(live_leases(leases)), "leases of dead processes"
        hidden = [path for path in self._root.rglob(".*") if path.is_file()]
        counts["view_half_written"] = len(hidden)  # they go after an hour

    def close(self) -> None:
        self._project.close()


def campaign(
    folder: Path, kills: int, seed: int, spark: Any, how: tuple[str, ...] = ()
) -> Counter[str]:
    """Kill so often; what happened, counted. Raises AssertionError on a wrong row.

    `how` says how the first ones are killed; the others are chosen.
    """
    pick, counts, planned = random.Random(seed), Counter[str](), list(how)
    root, log = folder / "views", folder / "views.log"
    checker, generator, now = Checker(root, spark, counts), Generator(seed), Expected()
    driver = Driver(root, log)
    try:
        while counts["view_kills"] < kills:
            kind = planned.pop(0) if planned else pick.choice(HOW)
            driver.ready()
            now, under_way = _until_killed(driver, kind, now, generator, pick, counts)
            time.sleep(pick.choice((0.0, 0.0, 0.3)))  # for the JVM, which goes on without it
            driver.end()
            driver = Driver(root, log)  # starts while this process checks
            now = checker.check(now, under_way)
    finally:
        driver.end()
    checker.close()
    return counts


def _until_killed(
    driver: Driver,
    how: str,
    now: Expected,
    generator: Generator,
    pick: random.Random,
    counts: Counter[str],
) -> tuple[Expected, Statement | None]:
    """Send statements until the driver is killed; what is certain then, and what was under way."""
    end = time.monotonic() + pick.uniform(0, MOST_SECONDS)
    while True:
        statement, last = generator.next(now), time.monotonic() >= end - 1
        at = pick.randrange(1, MOST_STEPS) if how == "step" and last else None
        driver.send(statement.sql, at)
        killed = False
        try:
            patience = DEADLINE_SECONDS if how == "step" else end - time.monotonic()
            answer = driver.answer(patience)
        except queue.Empty:
            assert how != "step", f"no end of {statement.sql}"
            killed = driver.kill(how, pick)
            # Without its JVM or a task, it says that the statement failed.
            answer = driver.answer(DEADLINE_SECONDS)
            counts["view_kills"] += killed
            counts[f"{how}_view_kills"] += killed
            if not killed:
                end = time.monotonic() + 1  # there was none; a little later
        if answer is None:
            if how == "step":
                counts["view_kills"] += 1
                counts["step_view_kills"] += 1
            counts[f"{statement.kind}_killed"] += 1
            return now, statement
        if "error" in answer:
            assert killed, answer["trace"]
            assert how in ("jvm", "worker"), answer["trace"]
            counts[f"{how}_kills_told"] += 1
            if how == "jvm":
                return now, statement
            # A task has died, which is an error: nothing was committed.
        else:
            now = statement.after
            counts[f"{statement.kind}_acknowledged"] += 1
            if killed and how == "jvm":
                return now, None
        if killed:  # without a task; the driver goes on, for a while
            how, end = "driver", time.monotonic() + pick.uniform(0, MOST_SECONDS)
