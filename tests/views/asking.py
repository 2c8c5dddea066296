"""Rows of an answer, in an order that does not depend on Spark's."""

from __future__ import annotations

from typing import Any

import windrow as wr


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def ask(project: wr.Project, text: str) -> list[tuple[Any, ...]]:
    return rows(project.sql(text))
