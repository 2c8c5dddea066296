"""Golden plans: a query in, the plan of its view out, in text files beside the written queries.

A file of `plans/` has, for some cases of its topic, the query and the plan that is expected. To
write the plans after a change, run the tests with WINDROW_WRITE_PLANS=1 and read the difference.

They are those of the newest Spark. Where an older one plans cases differently, `plans/RELEASE/` has
files with those cases alone; cases that it does not know are left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from view_cases import FOLDER, RELEASE, cases
from view_tables import TABLES

import windrow

PLANS = Path(__file__).parent / "plans"
TOPICS = sorted(path.stem for path in FOLDER.glob("*.sql"))
EACH = 10  # cases of a new topic, evenly spread


def chosen(topic: str) -> list[str]:
    """The cases whose plans are there; of a new topic, some that read tables alone."""
    path = PLANS / f"{topic}.txt"
    if path.exists():
        return re.findall(r"^-- (\w+)$", path.read_text(), re.M)
    names = [name for name, case in cases(topic).items() if set(case.reads) <= set(TABLES)]
    step = max(1, len(names) // EACH)
    return names[::step][:EACH]


@pytest.fixture(scope="module")
def project(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> windrow.Project:
    found = windrow.Project(tmp_path_factory.mktemp("plans"), spark=spark, progress=False)
    for name, columns in TABLES.items():
        found.sql(f"CREATE TABLE {name} ({columns})")
    return found


def explained(project: windrow.Project, query: str) -> str:
    frame = project.sql(f"EXPLAIN CREATE MATERIALIZED VIEW v AS {query}")
    assert frame is not None
    return str(frame.collect()[0][0])


def blocks(path: Path) -> dict[str, str]:
    """The plans of a file, each with its query, by case."""
    if not path.exists():
        return {}
    found = re.split(r"^-- (\w+)\n", path.read_text(), flags=re.M)
    return {name: text.strip() for name, text in zip(found[1::2], found[2::2], strict=True)}


def write(path: Path, plans: dict[str, str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n\n".join(f"-- {name}\n{text}" for name, text in plans.items()) + "\n")


@pytest.mark.parametrize("topic", TOPICS)
def test_plans(project: windrow.Project, topic: str) -> None:
    known = cases(topic)
    found = {
        name: f"{known[name].view.query.strip()}\n\n{explained(project, known[name].view.query)}"
        for name in chosen(topic)
        if name in known
    }
    newest, own = PLANS / f"{topic}.txt", PLANS / RELEASE / f"{topic}.txt"
    if os.environ.get("WINDROW_WRITE_PLANS"):
        others = {name: text for name, text in found.items() if text != blocks(newest).get(name)}
        if not own.parent.exists():
            write(newest, found)
        elif others:
            write(own, others)
    expected = {**blocks(newest), **blocks(own)}
    assert found == {name: expected.get(name) for name in found}


def test_plans_are_many() -> None:
    assert sum(len(chosen(topic)) for topic in TOPICS) >= 60
