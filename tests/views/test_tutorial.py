"""The SQL of the pages on views does what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import windrow

PAGES = [("views.md", 4), ("reductions.md", 3), ("topk.md", 2), ("joins.md", 1), ("costs.md", 1)]
DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(sql|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def shown(frame: Any) -> list[str]:
    rows = [["NULL" if value is None else str(value) for value in row] for row in frame.collect()]
    lines = "\n".join([" | ".join(frame.columns), *(" | ".join(row) for row in rows)])
    return lines.splitlines()


@pytest.mark.parametrize(("page", "blocks"), PAGES)
def test_the_statements(spark: Any, tmp_path: Path, page: str, blocks: int) -> None:
    project = windrow.Project(tmp_path, spark=spark, progress=False)
    last: Any = None
    compared = 0
    for kind, block in BLOCK.findall((DOCS / page).read_text()):
        if kind == "text":
            assert shown(last) == block.splitlines()
            compared += 1
            continue
        for statement in filter(str.strip, block.split(";\n")):
            last = project.sql(statement)
    assert compared == blocks
