"""SQL statements as data: what Spark's parser has read (see `windrow.spark.parsing`).

A plan or an expression is a Java object of Spark, kept as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Plan = Any  # a LogicalPlan of Spark
Expression = Any


@dataclass(frozen=True)
class Statement:
    """One statement. `text` is what the user wrote."""

    text: str


@dataclass(frozen=True)
class Query(Statement):
    plan: Plan


@dataclass(frozen=True)
class Column:
    """A column of CREATE TABLE; `type_json` is its type in Spark's JSON, `default` is SQL."""

    name: str
    type_json: str
    nullable: bool = True
    comment: str | None = None
    default: str | None = None


@dataclass(frozen=True)
class Files:
    """USING and LOCATION of CREATE TABLE: rows that are in files of others."""

    format: str
    location: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CreateTable(Statement):
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    if_not_exists: bool = False
    comment: str | None = None
    query: Plan | None = None  # AS SELECT; then there are no columns
    properties: Mapping[str, str] = field(default_factory=dict)
    files: Files | None = None  # then columns may be left out


@dataclass(frozen=True)
class AlterTable(Statement):
    """SET and UNSET TBLPROPERTIES; None unsets one."""

    name: str
    properties: Mapping[str, str | None]


@dataclass(frozen=True)
class CreateView(Statement):
    """`sql` is the text of the query alone. `columns` are other names for those of `query`."""

    name: str
    query: Plan
    sql: str
    if_not_exists: bool = False
    replace: bool = False
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change(Statement):
    """What all statements that change a table have.

    `plan` is the whole statement; `ctes` the WITH clause before it.
    """

    table: str
    plan: Plan
    ctes: Plan | None


@dataclass(frozen=True)
class Insert(Change):
    query: Plan
    columns: tuple[str, ...] = ()
    by_name: bool = False
    overwrite: bool = False


@dataclass(frozen=True)
class Assignment:
    """`target = value`; a target of several parts is a field, or qualified by the table."""

    target: tuple[str, ...]
    value: Expression


@dataclass(frozen=True)
class Update(Change):
    alias: str
    assignments: tuple[Assignment, ...]
    condition: Expression | None


@dataclass(frozen=True)
class Delete(Change):
    alias: str
    condition: Expression | None


@dataclass(frozen=True)
class Action:
    """A WHEN clause of MERGE. `assignments` is None for `UPDATE SET *` and `INSERT *`."""

    kind: str  # update, delete or insert
    condition: Expression | None
    assignments: tuple[Assignment, ...] | None = ()


@dataclass(frozen=True)
class Merge(Change):
    alias: str
    source: Plan
    condition: Expression
    matched: tuple[Action, ...]
    not_matched: tuple[Action, ...]
    not_matched_by_source: tuple[Action, ...]


@dataclass(frozen=True)
class Truncate(Statement):
    table: str


@dataclass(frozen=True)
class Drop(Statement):
    """`what` is "table" or "view"."""

    what: str
    name: str
    if_exists: bool


@dataclass(frozen=True)
class Refresh(Statement):
    name: str


@dataclass(frozen=True)
class Show(Statement):
    """`what` is "tables" or "views"."""

    what: str
    pattern: str | None = None


@dataclass(frozen=True)
class ShowArrangements(Statement):
    """What views keep: of one view, or of those whose names match; counted if it is `exact`."""

    view: str | None = None
    pattern: str | None = None
    exact: bool = False


@dataclass(frozen=True)
class ShowColumns(Statement):
    name: str


@dataclass(frozen=True)
class ShowCreate(Statement):
    name: str


@dataclass(frozen=True)
class Describe(Statement):
    name: str
    extended: bool


@dataclass(frozen=True)
class DescribeQuery(Statement):
    plan: Plan


@dataclass(frozen=True)
class Explain(Statement):
    """Of a query (`plan`), of a view that would be created, or of one that is there (`name`)."""

    mode: str  # as `DataFrame.explain` takes it; or "analyze", of a view
    plan: Plan | None = None
    view: CreateView | None = None
    name: str | None = None


@dataclass(frozen=True)
class Setting(Statement):
    """SET and RESET: Spark's own, in the project's session. RESET may have one `name`."""

    plan: Plan
    reset: bool = False
    name: str | None = None
