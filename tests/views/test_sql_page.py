"""The statements of docs/sql.md do what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import windrow as wr
from windrow.spark.tokens import pieces

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_statements(spark: Any, tmp_path: Path) -> None:
    project = wr.Project(tmp_path, spark=spark)
    found: Any = None
    compared = 0
    for language, block in BLOCK.findall(PAGE.read_text()):
        if language == "sql":
            for piece in pieces(block):
                found = project.sql(piece.text)
        if language == "text":
            rows = [" | ".join(map(str, row)) for row in found.collect()]
            assert [" | ".join(found.columns), *rows] == block.splitlines()
            compared += 1
    assert compared == 2


def test_the_samples(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    for language, block in BLOCK.findall(PAGE.read_text()):
        if language == "python":
            exec(compile(block, str(PAGE), "exec"), scope)
    assert sorted(tuple(map(str, row)) for row in scope["df"].collect()) == [
        ("Bern", "9.50"),
        ("Oslo", "12.00"),
    ]
    rows = sorted(tuple(map(str, row)) for row in scope["project"].read("sales").collect())
    assert rows == [("1", "Bern", "9.90"), ("2", "Oslo", "12.00")]
