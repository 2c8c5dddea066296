"""Written queries as views, compared with Spark's own answer after each of several batches.

Views share a project, so that a batch is one tick for all of them. What is wrong is kept by view,
and each has a test of its own. `make test` takes one query of twenty, and `make test-long` all, in
a project for each file. WINDROW_VIEWS_SEED gives other histories, and other queries.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from view_cases import LONG, SEED, Case, cases, one_of, some, topics
from view_oracle import GENERATED, History, quiet_session
from view_tables import TABLES, Rows, SharedRows, batches, first_rows

import windrow

CHOSEN = {topic: some(topic, every=20) for topic in topics()}

EXCHANGED = [
    ("aggregates", "aggregates_of_every_class"),
    ("groups", "distinct_several"),
    ("groups", "rollup"),
    ("groups", "global_aggregate"),
    ("groups", "group_by_collated_within"),
    ("groups", "session_windows"),
    ("joins", "full_join_residual"),
    ("joins", "anti_join"),
    ("joins", "cross_join"),
    ("joins", "triangles"),
    ("nested", "exploded_groups"),
    ("sets", "except_all"),
    ("subqueries", "not_in"),
    ("subqueries", "scalar_correlated"),
    ("topk", "top_three"),
    ("topk", "rank_per_group"),
    ("windows", "running_sum"),
]


def run(history: History, chosen: Mapping[str, Case], rows: Rows) -> dict[str, str]:
    """Go through a whole history; what is wrong, by view, at the first step where it is."""
    wrong: dict[str, str] = {}

    def attempt(name: str, step: Callable[[], Any]) -> None:
        try:
            problem = step()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            wrong.setdefault(name, f"seed {SEED}, {problem}")

    def tick() -> None:
        """A tick; a view that makes it fail, and is named, is dropped, so that others go on."""
        while True:
            try:
                history.project.tick()
                return
            except Exception as error:
                named = [name for name in history.views if name in str(error).split("\n")[0]]
                if not named:
                    raise
                wrong.setdefault(named[-1], f"seed {SEED}, a tick failed: {error}")
                drop(named[-1])

    def drop(name: str) -> None:
        for other in [o for o, case in chosen.items() if name in case.reads]:
            if other in history.views:
                wrong.setdefault(other, f"reads {name}, which failed")
                drop(other)
        history.drop(name)

    history.write(first_rows(rows))
    for name, case in chosen.items():
        view = case.view
        attempt(name, lambda v=view: history.create(v.name, v.query, v.unordered))  # type: ignore[misc]
    for name in list(history.views):
        attempt(name, lambda name=name: history.problem(name))  # type: ignore[misc]
    due: set[str] = set()
    for number, (what, batch) in enumerate(batches(history.model, rows)):
        history.write(batch, what)
        tick()
        # Of two views, each is compared after every other batch, and after the last.
        due = {name for place, name in enumerate(history.views) if (place + number) % 2 == 0}
        for name in due - set(wrong):
            attempt(name, lambda name=name: history.problem(name, stored=True))  # type: ignore[misc]
    for name in set(history.views) - due - set(wrong):
        attempt(name, lambda name=name: history.problem(name))  # type: ignore[misc]
    return wrong


@pytest.fixture(scope="module")
def wrong(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """What is wrong in a topic, by view; found once, when first asked for."""
    known: dict[str, dict[str, str]] = {}

    def find(topic: str) -> dict[str, str]:
        if topic not in known:
            together = [topic] if LONG else topics()
            chosen = {name: case for one in together for name, case in CHOSEN[one].items()}
            root: Path = tmp_path_factory.mktemp(topic)
            generated = quiet_session(spark, GENERATED)
            project = windrow.Project(root, spark=generated, progress=False)
            try:
                history = History.start(project, generated, TABLES)
                rows = SharedRows(random.Random(f"{topic} {SEED}"))
                found = run(history, chosen, rows)
            except Exception as error:
                found = {name: f"{type(error).__name__}: {error}" for name in chosen}
            known.update(dict.fromkeys(together, found))
        return known[topic]

    return find


@pytest.mark.parametrize(
    ("topic", "name"), [(topic, name) for topic in topics() for name in CHOSEN[topic]]
)
def test_query(spark: Any, wrong: Callable[[str], dict[str, str]], topic: str, name: str) -> None:
    assert name not in (found := wrong(topic)), found[name]


def test_exchanged_ticks(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ticks exchange rows by key. Here every tick does, for each kind of operator."""
    from windrow.views.engine import ticker

    monkeypatch.setattr(ticker, "LARGE", 0)
    chosen = {name: cases(topic)[name] for topic, name in one_of(2, EXCHANGED)}
    history = History.start(windrow.Project(tmp_path, spark=spark, progress=False), spark, TABLES)
    wrong = run(history, chosen, SharedRows(random.Random(f"exchanged {SEED}")))
    assert not wrong, "\n\n".join(wrong.values())


def test_cases_are_many() -> None:
    assert sum(len(cases(topic)) for topic in topics()) >= 150


def test_cases_have_names_of_their_own() -> None:
    names = [name for topic in topics() for name in cases(topic)]
    assert len(names) == len(set(names))


def test_cases_say_what_they_read() -> None:
    for topic in topics():
        before: set[str] = set(TABLES)
        for name, case in cases(topic).items():
            assert before.issuperset(case.reads), f"{topic}.{name} reads {case.reads}"
            before.add(name)
