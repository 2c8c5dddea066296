"""Statements and ticks on a project with views, whose driver, JVM or tasks are killed.

A driver runs one statement after the other; after each, it says so. After a kill, the project is
opened by another process: what was acknowledged is there once, the statement that was under way
entirely or not at all, and after a tick each view is what Spark makes of its query over the tables.
Then the next driver goes on where the last one ended.
"""

from __future__ import annotations

import queue
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "campaigns"), str(TESTS / "views")]

from drivers import Driver, Drivers  # noqa: E402
from view_oracle import Model, differences  # noqa: E402
from view_statements import FROM_SOURCES, TABLES, Expected, Generator, Scene, Statement  # noqa: E402

import windrow  # noqa: E402
from windrow.storage.leases import live_leases  # noqa: E402
from windrow.storage.store import Store  # noqa: E402
from windrow.views.history.verify import verify_history  # noqa: E402

SCENES = {"tables": TABLES, "sources": FROM_SOURCES}
HOW = ("driver", "driver", "driver", "step", "step", "step", "step", "jvm")  # at the end
MOST_SECONDS = 3.0  # from the first statement of a driver to its end
MOST_STEPS = 60
FRESH = 3  # each so many checks, the project is opened anew; else by a handle that has lived on


class Checker:
    """Looks at the project from a process, and with a session, that nobody kills."""

    def __init__(self, scene: Scene, folder: Path, spark: Any, counts: Counter[str]) -> None:
        self._scene, self._spark, self._counts = scene, spark, counts
        self._root = folder / "project"
        self._project = self._open()
        for name, columns in scene.tables.items():
            self._project.sql(f"CREATE TABLE {name} ({columns})")
        self._model = Model(spark, scene.relations)
        self._checks = 0

    def _open(self) -> windrow.Project:
        return windrow.Project(self._root, spark=self._spark, progress=False)

    def define(self, generator: Generator) -> None:
        for name, source in generator.sources.items():
            source.define(self._project, name)

    def check(self, now: Expected, under_way: Statement | None) -> Expected:
        """What there is: all that was acknowledged, and perhaps what was under way."""
        self._checks += 1
        if self._checks % FRESH == 0:
            self._project.close()
            self._project = self._open()
        verified = verify_history(Store.at(self._root))
        assert verified is not None
        assert verified.is_sound, verified.problems
        now = self._found(now, under_way)
        for name, rows in now.rows.items():
            if rows != self._model.rows[name]:
                self._model.rows[name] = rows
                self._model._register(name)
        self._project.tick()
        for source in self._scene.sources:
            found = Counter(map(tuple, self._project.read(source).collect()))
            assert found == Counter(now.rows[source]), f"{source} holds other rows"
        for view, query in self._scene.views.items():
            if view in now.views:
                wanted = self._model.answer(query)
                self._model.define(view, query)  # for those that read it
                assert not (wrong := differences(wanted, self._project.read(view))), (view, wrong)
                self._counts["views_compared"] += 1
        self._sweep()
        return now

    def _found(self, now: Expected, under_way: Statement | None) -> Expected:
        """Which of two states the project is in: without what was under way, or with it."""
        states = [now] if under_way is None else [now, under_way.after]
        tables = self._scene.tables
        rows = {name: Counter(map(tuple, self._project.read(name).collect())) for name in tables}
        listed = self._project.sql("SHOW VIEWS")
        assert listed is not None
        words = {word for row in listed.collect() for word in row}
        views = {name for name in self._scene.views if name in words}
        for state in states:
            wanted = {name: Counter(state.rows[name]) for name in tables}
            if wanted == rows and state.views == views:
                if under_way is not None and now != under_way.after:
                    done = "committed" if state is not now else "not_committed"
                    self._counts[f"view_statements_{done}_unsaid"] += 1
                return state
        wrong = {
            name: (sorted(Counter(held) - rows[name]), sorted(rows[name] - Counter(held)))
            for name, held in now.rows.items()
            if name in tables
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
    folder: Path,
    kills: int,
    seed: int,
    spark: Any,
    how: tuple[str, ...] = (),
    scene: str = "tables",
) -> Counter[str]:
    """Kill so often; what happened, counted. Raises AssertionError on a wrong row.

    `how` says how the first ones are killed; the others are chosen.
    """
    pick, counts, planned = random.Random(seed), Counter[str](), list(how)
    generator, now = Generator.start(SCENES[scene], folder / "sources", seed)
    checker = Checker(SCENES[scene], folder, spark, counts)
    checker.define(generator)
    child = Path(__file__).with_name("view_child.py")
    with Drivers(child, folder / "log", str(folder / "project")) as drivers:
        driver = drivers.start()
        while counts["view_kills"] < kills:
            ends = planned.pop(0) if planned else pick.choice(HOW)
            tasks = 0 if how else pick.choice((0, 1, 2))
            kinds = [*["task"] * tasks, ends]
            now, under_way = _until_killed(driver, kinds, now, generator, pick, counts)
            driver = drivers.start()
            now = checker.check(now, under_way)
    checker.close()
    return counts


def _until_killed(
    driver: Driver,
    kinds: list[str],
    now: Expected,
    generator: Generator,
    pick: random.Random,
    counts: Counter[str],
) -> tuple[Expected, Statement | None]:
    """Send statements, and kill what `kinds` says, one after the other; the last ends the driver.

    What is certain then, and what was under way.
    """
    how, *later = kinds
    end = time.monotonic() + pick.uniform(0, MOST_SECONDS)
    while True:
        statement, last = generator.next(now), time.monotonic() >= end - 1
        at = pick.randrange(1, MOST_STEPS) if how == "step" and last else None
        driver.send(sql=statement.sql, kill_at=at)
        killed = False
        try:
            patience = () if how == "step" else (end - time.monotonic(),)
            answer = driver.answer(*patience)
        except queue.Empty:
            assert how != "step", f"no end of {statement.sql}"
            killed = driver.kill(how, pick)
            # Without its JVM or a task, it says that the statement failed.
            answer = driver.answer()
            end = time.monotonic() + 0.3  # if there was none: a little later
        killed |= answer is None
        counts["view_kills"] += killed
        counts[f"{how}_view_kills"] += killed
        driver.jvm.wounded |= killed and how == "task"
        if answer is None:
            assert how in ("driver", "step"), f"the driver has ended by itself: {statement.sql}"
            counts[f"{statement.kind}_killed"] += 1
            return now, statement
        if "error" in answer:  # nothing was committed
            # Whoever waits for tasks may be the first to see that one is gone, later: perhaps the
            # next driver, since the JVM is the same.
            assert driver.jvm.wounded or (killed and how == "jvm"), answer["trace"]
            counts[f"{how}_kills_told"] += 1
            if not answer["ours"]:
                counts["told_by_others"] += 1
                print(
                    answer["trace"][:1500], answer["trace"][-3000:], file=sys.stderr, sep="\n...\n"
                )
        else:
            now = statement.after
            counts[f"{statement.kind}_acknowledged"] += 1
        if killed and how == "jvm":
            return now, statement if "error" in answer else None
        if killed:  # without a task; the driver goes on, for a while
            how, *later = later
            end = time.monotonic() + pick.uniform(0, MOST_SECONDS)
