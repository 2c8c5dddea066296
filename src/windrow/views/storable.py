"""Columns of Spark types that no Parquet file or Arrow table of ours holds, and how they are kept.

Queries see a relation's own types; its collection stores, where these differ, another type that
holds the same values: equal values are stored alike, and come back as they were.

    INTERVAL YEAR TO MONTH    INT, months              STRING COLLATE ...   STRING
    INTERVAL DAY TO SECOND    BIGINT, microseconds     CHAR(n), VARCHAR(n)  STRING
    TIME(p)                   STRING                   VOID, STRUCT<>       BOOLEAN

Fields of a struct that have one name, as those of arrays_zip(a, a), are told apart by a number.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import SchemaError
from windrow.rows.types import RESERVED
from windrow.spark.schemas import quoted, spark_to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

Convert = Callable[["Column"], "Column"]


@dataclass(frozen=True)
class Kept:
    """A type, the type it is stored as, and the way there and back; None: it is the same."""

    stored: DataType
    there: Convert | None = None
    back: Convert | None = None


@dataclass(frozen=True)
class Storable:
    """The columns of a relation as queries see them (`schema`) and as they are `stored`."""

    schema: StructType
    stored: StructType
    columns: tuple[Kept, ...]

    @staticmethod
    def of(schema: StructType, what: str) -> Storable:
        """How rows of `schema` are stored. Raises SchemaError that names a column that cannot be.

        `what` says in errors whose columns these are: "table sales".
        """
        from pyspark.sql.types import StructField, StructType

        if not schema.fields:
            raise SchemaError(f"{what}: there are no columns; give it at least one")
        seen: set[str] = set()
        for field in schema:
            if field.name.lower() in RESERVED:
                raise SchemaError(
                    f"{what}: column {field.name!r}: the names {sorted(RESERVED)} belong to "
                    "Windrow; rename it"
                )
            if field.name.lower() in seen:
                raise SchemaError(
                    f"{what}: column {field.name!r} occurs twice (names are compared without "
                    "case); rename one"
                )
            seen.add(field.name.lower())
        kept = tuple(kept_as(f.dataType, f"{what}: column {f.name!r}") for f in schema)
        stored = [StructField(f.name, k.stored) for f, k in zip(schema, kept, strict=True)]
        return Storable(schema, StructType(stored), kept)

    @property
    def arrow(self) -> pa.Schema:
        """The stored columns as a collection is created with them."""
        return spark_to_arrow_schema(self.stored)

    def to_stored(self, frame: DataFrame, *others: str) -> DataFrame:
        """A frame of `schema` as it is stored; the columns `others` come too, as they are."""
        from pyspark.sql import functions as F  # noqa: N812

        if all(kept.there is None for kept in self.columns):
            return frame
        found = []
        for field, kept in zip(self.schema, self.columns, strict=True):
            column = F.col(quoted(field.name))
            found.append(column if kept.there is None else kept.there(column).alias(field.name))
        return frame.select(*found, *(F.col(quoted(name)) for name in others))

    def from_stored(
        self, frame: DataFrame, *others: str, read: Collection[str] | None = None
    ) -> DataFrame:
        """A frame of stored columns as queries see it. Of those not `read`, there are NULLs."""
        from pyspark.sql import functions as F  # noqa: N812

        found = []
        for field, kept in zip(self.schema, self.columns, strict=True):
            if read is not None and field.name not in read:
                null = F.lit(None).cast(field.dataType)
                found.append(null.alias(field.name, metadata=field.metadata))
                continue
            column = F.col(quoted(field.name))
            if kept.back is not None:
                column = kept.back(column)
            if not field.nullable:
                column = _known_not_null(frame, column)
            elif kept.back is None and not field.metadata:
                found.append(column)
                continue
            found.append(column.alias(field.name, metadata=field.metadata))
        return frame.select(*found, *(F.col(quoted(name)) for name in others))


def _known_not_null(frame: DataFrame, column: Column) -> Column:
    from windrow.spark.nodes import java
    from windrow.spark.plans import column_of, expression_of

    session = frame.sparkSession
    wrapped = java(session, "org.apache.spark.sql.catalyst.expressions.KnownNotNull")
    return column_of(session, wrapped(expression_of(session, column)))


def kept_as(type_: DataType, where: str) -> Kept:
    """How one type is stored, or a SchemaError that says where it is."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    match type_:
        case T.StringType(collation=name) if name != "UTF8_BINARY":
            return Kept(T.StringType(), lambda c: c.cast("string"), lambda c: F.collate(c, name))
        case T.CharType() | T.VarcharType():
            return Kept(T.StringType())
        case T.YearMonthIntervalType():
            return Kept(
                T.IntegerType(),
                lambda c: c.cast("interval month").cast("int"),
                lambda c: c.cast("interval month").cast(type_),
            )
        case T.DayTimeIntervalType():
            return Kept(
                T.LongType(),
                lambda c: (c.cast("interval second").cast("decimal(20,6)") * 1_000_000).cast(
                    "long"
                ),
                lambda c: (
                    (c.cast("decimal(20,0)") / F.lit(1_000_000).cast("decimal(7,0)"))
                    .cast("decimal(20,6)")
                    .cast("interval second")
                    .cast(type_)
                ),
            )
        case T.NullType():
            return Kept(T.BooleanType(), lambda c: c.cast("boolean"), lambda c: F.lit(None))
        case T.StructType():
            return _struct(type_, where)
        case T.ArrayType():
            return _array(type_, where)
        case T.MapType():
            return _map(type_, where)
    if type_.typeName() == "time":
        return Kept(T.StringType(), lambda c: c.cast("string"), lambda c: c.cast(type_))
    _refuse(type_, where)
    return Kept(type_)


def _refuse(type_: DataType, where: str) -> None:
    """Types for which there is no form that is equal exactly for equal values."""
    from pyspark.sql import types as T  # noqa: N812

    known = (
        T.BooleanType,
        T.ByteType,
        T.ShortType,
        T.IntegerType,
        T.LongType,
        T.FloatType,
        T.DoubleType,
        T.DecimalType,
        T.StringType,
        T.BinaryType,
        T.DateType,
        T.TimestampType,
        T.TimestampNTZType,
    )
    if isinstance(type_, known):
        return
    hints = {
        "variant": "store its text, to_json(x), as STRING, and parse_json() it in queries",
        "interval": "use INTERVAL YEAR TO MONTH or INTERVAL DAY TO SECOND",
        "udt": "store the plain columns that it is made of",
    }
    name = type_.simpleString()
    hint = hints.get(type_.typeName(), "cast it to a type that can be: STRING or BINARY, say")
    raise SchemaError(f"{where}: type {name} cannot be stored; {hint}")


def _struct(type_: StructType, where: str) -> Kept:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    if not type_.fields:
        # NULL and the one value that there is.
        return Kept(
            T.BooleanType(),
            lambda c: F.when(c.isNotNull(), F.lit(True)),
            lambda c: F.when(c, F.from_json(F.lit("{}"), T.StructType([]))),
        )
    names = _distinct([field.name for field in type_])
    if names != [field.name for field in type_]:
        return _renamed(type_, names, where)
    inner = [kept_as(field.dataType, f"{where}.{field.name}") for field in type_]
    stored = T.StructType(
        [T.StructField(f.name, k.stored) for f, k in zip(type_, inner, strict=True)]
    )
    if all(kept.there is None for kept in inner):
        return Kept(stored)

    def each(c: Column, way: str) -> Column:
        fields = []
        for field, kept in zip(type_, inner, strict=True):
            value, convert = c.getField(field.name), getattr(kept, way)
            fields.append((value if convert is None else convert(value)).alias(field.name))
        return F.when(c.isNotNull(), F.struct(*fields))

    return Kept(stored, lambda c: each(c, "there"), lambda c: each(c, "back"))


def _renamed(type_: StructType, names: list[str], where: str) -> Kept:
    """A struct of which some fields have one name, by other `names`."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    fields = [T.StructField(n, f.dataType) for n, f in zip(names, type_, strict=True)]
    renamed = T.StructType(fields)
    kept = _struct(renamed, where)

    def there(c: Column) -> Column:
        c = c.cast(renamed)  # field by field, in their order
        return c if kept.there is None else kept.there(c)

    def back(c: Column) -> Column:
        found = c if kept.back is None else kept.back(c)
        own = [found.getField(n).alias(f.name) for n, f in zip(names, type_, strict=True)]
        return F.when(c.isNotNull(), F.struct(*own))

    return Kept(kept.stored, there, back)


def _distinct(names: Sequence[str]) -> list[str]:
    """The same names, but for those that occurred before, whatever their case.

    >>> _distinct(["a", "b", "A", "a_2", "a"])
    ['a', 'b', 'A_2', 'a_2_2', 'a_3']
    """
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        choices = itertools.chain([name], (f"{name}_{n}" for n in itertools.count(2)))
        found.append(next(one for one in choices if one.lower() not in taken))
        taken.add(found[-1].lower())
    return found


def _array(type_: Any, where: str) -> Kept:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    inner = kept_as(type_.elementType, f"{where} element")
    stored = T.ArrayType(inner.stored)
    there, back = inner.there, inner.back
    if there is None or back is None:
        return Kept(stored)
    return Kept(
        stored,
        lambda c: F.transform(c, lambda x: there(x)),
        lambda c: F.transform(c, lambda x: back(x)),
    )


def _map(type_: Any, where: str) -> Kept:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    key, value = kept_as(type_.keyType, f"{where} key"), kept_as(type_.valueType, f"{where} value")
    stored = T.MapType(key.stored, value.stored)
    if key.there is None and value.there is None:
        return Kept(stored)

    def each(c: Column, way: str) -> Column:
        keys, values = getattr(key, way), getattr(value, way)
        if keys is not None:
            c = F.transform_keys(c, lambda k, _: keys(k))
        if values is not None:
            c = F.transform_values(c, lambda _, v: values(v))
        return c

    return Kept(stored, lambda c: each(c, "there"), lambda c: each(c, "back"))


def key_columns(stored: StructType) -> list[str]:
    """The columns that can be a collection's key: a map cannot."""
    from pyspark.sql import types as T  # noqa: N812

    def has_map(type_: DataType) -> bool:
        if isinstance(type_, T.MapType):
            return True
        if isinstance(type_, T.ArrayType):
            return has_map(type_.elementType)
        if isinstance(type_, T.StructType):
            return any(has_map(field.dataType) for field in type_)
        return False

    def usable(field: StructField) -> bool:
        return not has_map(field.dataType)

    return [field.name for field in stored if usable(field)]
