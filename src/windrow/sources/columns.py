"""Columns as Windrow reads them from a table: one declaration, for Spark's reader and for tasks.

A column is made from one column of the table in one of a few forms. `sql` says it to Spark,
`make` does it with Arrow; the two agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.errors import DataError
from windrow.sources.times import millis_sql, to_millis
from windrow.spark.schemas import quoted

KNOWN_AT = "__known_at"  # when an update became known, in milliseconds

_COMES = ("insert", "update_postimage")
_GOES = ("delete", "update_preimage")


class Form(Enum):
    PLAIN = "the column, as `type`"
    MILLIS = "a time, in milliseconds"
    BEFORE = "-1 for the image before a change, 1 for the one after"
    CHANGE = "the same, from the change types of a change feed"
    CONSTANT = "`value` in every row"
    SQL = "an expression, which only Spark evaluates"


@dataclass(frozen=True)
class Taken:
    """The column `name`, made from `source`: a column, or for SQL an expression."""

    name: str
    source: str
    type: pa.DataType
    form: Form = Form.PLAIN
    value: int = 0

    @property
    def reads(self) -> str | None:
        """The table's column that is read; None if that cannot be told, or none is."""
        return None if self.form in (Form.CONSTANT, Form.SQL) else self.source

    def sql(self, found: pa.Schema, spark_type: Any) -> Any:
        """A Spark column; `found` is the table's schema."""
        from pyspark.sql import functions as F  # noqa: N812

        if self.form is Form.SQL:
            return F.expr(self.source).alias(self.name)
        if self.form is Form.CONSTANT:
            return F.lit(self.value).cast(spark_type).alias(self.name)
        column = quoted(self.source)
        if self.form is Form.MILLIS:
            text = millis_sql(column, found.field(self.source).type)
        elif self.form is Form.BEFORE:
            bad = f"raise_error('{_quote(self.source)} is null')"
            text = f"CASE WHEN {column} THEN -1L WHEN NOT {column} THEN 1L ELSE {bad} END"
        elif self.form is Form.CHANGE:
            bad = f"raise_error(concat('unknown {_quote(self.source)}: ', {column}))"
            text = (
                f"CASE WHEN {column} IN {_COMES} THEN 1L WHEN {column} IN {_GOES} THEN -1L "
                f"ELSE {bad} END"
            )
        else:
            return F.col(column).cast(spark_type).alias(self.name)
        return F.expr(text).cast(spark_type).alias(self.name)

    def make(self, batch: pa.RecordBatch) -> pa.Array:
        if self.form is Form.CONSTANT:
            return pa.array(np.full(batch.num_rows, self.value), self.type)
        found = batch.column(self.source)
        if self.form is Form.MILLIS:
            if pa.types.is_timestamp(found.type) and found.type.unit == "ms":
                return found.cast(pa.int64())  # the same bits
            values, valid = to_millis(found)
            return pa.array(values, mask=None if not found.null_count else ~valid)
        if self.form is Form.BEFORE:
            if found.null_count:
                raise DataError(f"{self.source} is null in {found.null_count} mutations")
            return pc.if_else(found, -1, 1).cast(pa.int64())
        if self.form is Form.CHANGE:
            return self._signs(found)
        return found if found.type == self.type else found.cast(self.type)

    def _signs(self, found: pa.Array) -> pa.Array:
        comes = pc.is_in(found, pa.array(_COMES, found.type))
        goes = pc.is_in(found, pa.array(_GOES, found.type))
        known = pc.or_(comes, goes)
        if not pc.all(known, min_count=0).as_py():
            odd = pc.unique(found.filter(pc.invert(known))).to_pylist()
            raise DataError(f"unknown {self.source}: {odd[:3]}; they are {[*_COMES, *_GOES]}")
        return pc.if_else(comes, 1, -1).cast(pa.int64())


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
