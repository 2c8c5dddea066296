"""Rows that a Python program gives: DataFrames, Arrow tables, pandas, lists of dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import OptionError, SchemaError
from windrow.spark.plans import active
from windrow.spark.schemas import is_dataframe, spark_to_arrow_schema
from windrow.spark.settings import is_remote, moved
from windrow.views.relations.names import Relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_from(session: SparkSession, rows: Any, table: Relation, what: str) -> DataFrame:
    """Rows as a DataFrame of `session`; `what` names the call in errors."""
    if is_dataframe(rows):
        if is_remote(rows.sparkSession):
            raise OptionError(f"{what}: a DataFrame of Spark Connect cannot be used here")
        return moved(rows, session)
    found = _arrow(rows, table, what)
    with active(session):
        return session.createDataFrame(found)


def alike(rows: Any) -> list[Any]:
    """Rows of dicts, those with the same keys together: the others have defaults elsewhere."""
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        return [rows]
    groups: dict[frozenset[str], list[Any]] = {}
    for row in rows:
        groups.setdefault(frozenset(row), []).append(row)
    return list(groups.values()) or [rows]


def _arrow(rows: Any, table: Relation, what: str) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if type(rows).__module__.startswith("pandas."):
        return pa.Table.from_pandas(rows, preserve_index=False)
    if isinstance(rows, Mapping):
        rows = [rows]
    if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
        return _from_dicts(rows, table, what)
    raise OptionError(
        f"{what}: cannot read rows from a {type(rows).__name__}; give a DataFrame, an Arrow table, "
        "a pandas DataFrame or a list of dicts"
    )


def _from_dicts(rows: Sequence[Mapping[str, Any]], table: Relation, what: str) -> pa.Table:
    """Rows as columns: of the table's types where the values fit, or else as they are."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        names = table.schema.names  # no rows: nothing will be done, with all columns
    types = {f.name.lower(): f.dataType for f in table.schema}
    columns = []
    for name in names:
        values = [row.get(name) for row in rows]
        columns.append(_column(values, types.get(name.lower()), f"{what}: column {name!r}"))
    return pa.table(columns, names=names)


def _column(values: list[Any], type_: Any, where: str) -> pa.Array:
    from pyspark.sql.types import StructType

    if type_ is not None:
        try:
            wanted = spark_to_arrow_schema(StructType().add("c", type_)).field(0).type
            return pa.array(values, wanted)
        except (SchemaError, pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            pass  # Spark says what does not fit, or casts it
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaError(f"{where}: the values have no common type ({error})") from error
