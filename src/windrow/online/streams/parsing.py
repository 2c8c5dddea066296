"""Messages as rows, by Spark SQL; of a message that becomes none, the reason.

    value ──▶ fields ──▶ images ──▶ columns of the table ──▶ checked
              JSON,      Debezium:  `select` of the          time, required columns; what the
              Avro       0 to 2     stream                   source's own `select` makes of it

Expressions are evaluated in ANSI mode, as in backfills. One that fails makes the job fail, and
`poison` finds the message: a row that no backfill could read never gets into the shard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windrow.errors import SchemaError
from windrow.online.streams import debezium
from windrow.online.streams.messages import (
    CORRUPT,
    FIELDS,
    FILE,
    IMAGE,
    OFFSET,
    PARTITION,
    PRODUCED,
    REASON,
    TOPIC,
    VALUE,
    bad,
)
from windrow.sources.definitions import EntitySource, Source
from windrow.sources.stream_columns import image_columns, parsed_schema
from windrow.sources.streams import KafkaStream, Stream
from windrow.sources.tables import require_columns, select_columns
from windrow.spark.schemas import empty_frame, quoted, spark_to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

ORIGIN = (VALUE, TOPIC, PARTITION, OFFSET, FILE, PRODUCED)
_LATEST = 253_402_300_800_000  # the year 10000, in milliseconds


@dataclass(frozen=True)
class Parser:
    """How the messages of a source's stream become rows with the columns `rows`.

    `columns` are those of a message, or of an image in its envelope; `options` are the parser's.
    """

    source: Source
    rows: StructType
    columns: StructType
    options: Mapping[str, str]

    @staticmethod
    def of(
        session: SparkSession, source: Source, rows: StructType, options: Mapping[str, str]
    ) -> Parser:
        """Checked: every column of the rows is made of those of messages, with its type."""
        stream = source.stream
        assert stream is not None
        what = f"{source.what}: stream"
        if stream.schema is not None:
            columns = parsed_schema(session, stream.schema, what)
        elif stream.envelope is not None:
            assert isinstance(source, EntitySource)
            images = image_columns(spark_to_arrow_schema(rows), source)
            columns = _only(rows, images)
        else:
            columns = rows
        found = Parser(source, rows, columns, dict(options))
        found._check(session, what)
        return found

    @property
    def stream(self) -> Stream:
        assert self.source.stream is not None
        return self.source.stream

    @property
    def _images(self) -> StructType:
        """The columns of rows that messages say something of."""
        if self.stream.envelope is None:
            return self.rows
        assert isinstance(self.source, EntitySource)
        return _only(self.rows, image_columns(spark_to_arrow_schema(self.rows), self.source))

    def _check(self, session: SparkSession, what: str) -> None:
        selected = dict(self.stream.selected)
        frame = empty_frame(session, self.columns)
        made = select_columns(frame, tuple(selected.items()), None, f"{what}: select").schema
        types = {one.name: one.dataType for one in (*self.columns, *(made if selected else ()))}
        require_columns(self.rows.names, [*selected, *self.stream.required], what)
        for field in self._images:
            if field.name in types and types[field.name] != field.dataType:
                raise SchemaError(
                    f"{what}: column {field.name!r} is {types[field.name].simpleString()} in "
                    f"messages and {field.dataType.simpleString()} in the table; say in select= of "
                    "the stream how the one becomes the other"
                )
        time = dict(self.source.selected).get(self.source.time)
        if time is None:
            require_columns(self.rows.names, [self.source.time], f"{self.source.what}: time")

    def parse(self, messages: DataFrame) -> DataFrame:
        """The rows of messages, with `PRODUCED` and `BAD`."""
        from pyspark.sql import functions as F  # noqa: N812

        frame = self._read(messages)
        if self.stream.envelope is None:
            frame = frame.withColumnRenamed(FIELDS, IMAGE)
            more: dict[str, Column] = {}
        else:
            assert isinstance(self.source, EntitySource)
            frame, more = debezium.images(frame, self.source, self.rows, self.columns)
        columns = [F.col(IMAGE)[one.name].alias(one.name) for one in self.columns]
        kept = [F.col(name) for name in (*ORIGIN, REASON)]
        frame = frame.select(*columns, *(c.alias(n) for n, c in more.items()), *kept)
        frame = frame.select(*(self._column(field, more) for field in self.rows), *kept)
        reason = F.coalesce(F.col(REASON), self._wrong(frame))
        frame = frame.withColumn(REASON, reason)  # evaluated once, and looked at twice
        own = [F.col(quoted(field.name)) for field in self.rows]
        message = F.col(VALUE)
        if CORRUPT in messages.columns:  # rows of files, which are no text
            message = F.coalesce(message, F.to_json(F.struct(*own)).cast("binary"))
        return frame.select(*own, F.col(PRODUCED), bad(F.col(REASON), message))

    def _read(self, messages: DataFrame) -> DataFrame:
        """With `FIELDS`, the columns of each message; and `REASON`, if it cannot be read."""
        from pyspark.sql import functions as F  # noqa: N812

        if CORRUPT in messages.columns:
            fields = F.struct(*(F.col(quoted(one.name)) for one in self.columns))
            reason = F.when(F.col(CORRUPT).isNotNull(), F.lit("not a row with these columns"))
            value = F.col(CORRUPT).cast("binary").alias(VALUE)
            kept = [value if name == VALUE else F.col(name) for name in ORIGIN]
            return messages.select(*kept, fields.alias(FIELDS), reason.alias(REASON))
        kept = [F.col(name) for name in ORIGIN]
        if self.stream.format == "avro":
            return self._avro(messages, kept)
        if self.stream.envelope is not None:  # what Kafka is told to forget, after each deletion
            messages = messages.where(F.col(VALUE).isNotNull())
        text = F.col(VALUE).cast("string")
        fields = F.from_json(text, self._json_schema(), self._json_options())
        frame = messages.select(*kept, fields.alias(FIELDS))
        other = F.when(F.expr(f"try_parse_json(CAST({VALUE} AS STRING)) IS NULL"), "not JSON")
        reason = (
            F.when(F.col(VALUE).isNull(), "the message is empty")
            .when(~F.is_valid_utf8(text), "not UTF-8")
            .when(F.col(FIELDS).isNull() | ~F.ltrim(text).startswith("{"), "not an object of JSON")
            .when(
                F.col(FIELDS)[CORRUPT].isNotNull(),
                other.otherwise("a column has a value of another type"),
            )
        )
        return frame.withColumn(REASON, reason)

    def _json_schema(self) -> StructType:
        from pyspark.sql.types import StringType, StructField, StructType

        columns = self.columns
        if self.stream.envelope is not None:
            columns = debezium.message(self.columns)
        return StructType([*columns, StructField(CORRUPT, StringType())])

    def _json_options(self) -> dict[str, str]:
        return {**self.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}

    def _avro(self, messages: DataFrame, kept: list[Any]) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.avro.functions import from_avro

        stream = self.stream
        assert isinstance(stream, KafkaStream)
        assert stream.avro_schema is not None
        fields = from_avro(F.col(VALUE), stream.avro_schema, {**self.options, "mode": "PERMISSIVE"})
        frame = messages.select(*kept, fields.alias(FIELDS))
        nothing = F.lit(True)  # what cannot be read has no column at all
        for one in self.columns:
            nothing &= F.col(FIELDS)[one.name].isNull()
        reason = F.when(F.col(VALUE).isNull(), "the message is empty").when(
            nothing, "not Avro of this schema"
        )
        return frame.withColumn(REASON, reason)

    def _column(self, field: Any, made: Mapping[str, Column]) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        selected = dict(self.stream.selected)
        name = field.name
        if name in made:
            return F.col(quoted(name))
        if name in selected:
            return F.expr(selected[name]).cast(field.dataType).alias(name)
        if name in self.columns.names:
            return F.col(quoted(name))
        return F.lit(None).cast(field.dataType).alias(name)

    def _wrong(self, rows: DataFrame) -> Column:
        """What is wrong with a row, if something is."""
        from pyspark.sql import functions as F  # noqa: N812

        selected = dict(self.source.selected)
        times = [self.source.time]
        if isinstance(self.source, EntitySource):
            times.append(self.source.known_at)
        elif getattr(self.source, "known", None) is not None:
            times.append(self.source.known)  # type: ignore[attr-defined]
        counts = F.lit(True) if self.source.where is None else F.expr(self.source.where)
        cases = [F.when(F.col(quoted(n)).isNull(), f"{n} is null") for n in self.stream.required]
        for name in times:
            text = selected.get(name, quoted(name))
            late = f"{name} is after the year 9999; if it is in milliseconds, convert it in select="
            cases.append(F.when(counts & F.expr(text).isNull(), f"{name} is null"))
            cases.append(F.when(counts & (_millis(rows, text) >= F.lit(_LATEST)), late))
        made = [text for name, text in selected.items() if text.strip("` ") not in rows.columns]
        if made or self.source.where is not None:
            # Never true; but whatever a backfill would evaluate is evaluated.
            some = F.hash(*(_hashable(rows, text) for text in made)) if made else F.lit(0)
            cases.append(F.when(counts & (F.length(some.cast("string")) == 0), "it has no value"))
        return F.coalesce(*cases)


def _hashable(rows: DataFrame, text: str) -> Column:
    """An expression; a map, which has no hash, as text."""
    from pyspark.sql import functions as F  # noqa: N812

    found = F.expr(text)
    if "map<" in rows.select(found.alias("x")).schema["x"].dataType.simpleString():
        return F.to_json(F.struct(found.alias("x")))
    return found


def _millis(rows: DataFrame, text: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    from windrow.sources.times import millis_sql

    found = spark_to_arrow_schema(rows.select(F.expr(text).alias("t")).schema)
    return F.expr(millis_sql(f"({text})", found.field("t").type))


def _only(schema: StructType, names: list[str]) -> StructType:
    from pyspark.sql.types import StructType

    return StructType([schema[name] for name in names])
