"""Streams, as users define them: where the rows of a source arrive, and in what form.

A stream is taken in by `windrow stream`, which appends its rows to the stream's shard. Everything
that reads the source reads that shard beside the source's table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from windrow.errors import DefinitionError

DEBEZIUM = "debezium"
Pairs = Mapping[str, str] | tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """What all streams share.

    A message has the columns of the source's table, or those that `schema` lists, as in CREATE
    TABLE. Where they are not the table's, `select` says how a column of the table is made of them,
    in Spark SQL. With `envelope="debezium"` a message is a change of a row, as Debezium tells it.
    `required` are columns of the table that no row may be without. `options` are those of Spark's
    reader; their values are never shown.
    """

    format: str = "json"
    schema: str | None = None
    envelope: str | None = None
    select: Pairs = ()
    required: Sequence[str] = ()
    options: Pairs = field(default=(), repr=False)  # may have secrets

    formats: ClassVar[Sequence[str]] = ()

    def __post_init__(self) -> None:
        what = type(self).__name__
        if self.format not in self.formats:
            raise DefinitionError(
                f"{what}: format is {self.format!r}; it is one of {list(self.formats)}"
            )
        if self.schema is not None and not _is_text(self.schema):
            raise DefinitionError(
                f"{what}: schema is {self.schema!r}; list columns, such as "
                "'user_id BIGINT, ts TIMESTAMP'"
            )
        if self.envelope not in (None, DEBEZIUM):
            raise DefinitionError(
                f"{what}: envelope is {self.envelope!r}; it is {DEBEZIUM!r}, or left out"
            )
        if self.envelope is not None and self.format != "json":
            raise DefinitionError(
                f"{what}: envelope {self.envelope!r} is read from JSON; set format='json'"
            )
        for name in ("select", "options"):
            object.__setattr__(self, name, _pairs(getattr(self, name), f"{what}: {name}"))
        if isinstance(self.required, str) or not all(map(_is_text, self.required)):
            raise DefinitionError(f"{what}: required is {self.required!r}; give a list of columns")
        object.__setattr__(self, "required", tuple(self.required))

    @property
    def selected(self) -> tuple[tuple[str, str], ...]:
        return tuple(dict(self.select).items())

    @property
    def reader_options(self) -> dict[str, str]:
        return dict(self.options)


@dataclass(frozen=True)
class KafkaStream(Stream):
    """A topic of Kafka.

    `servers` are brokers, such as "kafka1:9092,kafka2:9092". `format` is "json", or "avro" with
    `avro_schema`, the schema of the writer as JSON. `options` are those of Spark's connector, such
    as "kafka.security.protocol", "kafka.sasl.jaas.config" or "maxOffsetsPerTrigger".

    >>> stream = KafkaStream("views", "localhost:9092", options={"kafka.ssl.key.password": "?"})
    >>> stream.topic, "?" in repr(stream)
    ('views', False)
    """

    topic: str
    servers: str
    avro_schema: str | None = None

    formats = ("json", "avro")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _is_text(self.topic) or "," in self.topic:
            raise DefinitionError(f"KafkaStream: topic is {self.topic!r}; name one topic")
        if not _is_text(self.servers):
            raise DefinitionError(
                f"KafkaStream: servers is {self.servers!r}; name brokers, such as 'localhost:9092'"
            )
        if _is_text(self.avro_schema) != (self.format == "avro"):
            raise DefinitionError(
                "KafkaStream: format='avro' and avro_schema=, the schema of its writer as JSON, go "
                "together"
            )
        for name in self.reader_options:
            if name.lower() in _TAKEN:
                raise DefinitionError(
                    f"KafkaStream: options has {name!r}; topic= and servers= say that already"
                )


@dataclass(frozen=True)
class FolderStream(Stream):
    """A folder in which files arrive, each complete as soon as it has its name.

    Every file is taken in once. One that is written again under its name is not looked at again.
    `format` is "json" (an object a line), "csv" (with a header), "parquet" or "avro". `options` are
    those of Spark's reader, such as "maxFilesPerTrigger", "multiLine" or "sep".
    """

    path: str | os.PathLike[str]

    formats = ("json", "csv", "parquet", "avro")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.path, str | os.PathLike) or not os.fspath(self.path).strip():
            raise DefinitionError(f"FolderStream: path is {self.path!r}; give a folder, or a URI")


@dataclass(frozen=True)
class TakenIn(Stream):
    """A stream as it is read: the shard that its rows are in, if it ever ran.

    Made by the project that reads it, in place of what the user wrote.
    """

    uri: str

    formats = ("json", "csv", "parquet", "avro")


_TAKEN = ("subscribe", "subscribepattern", "assign", "kafka.bootstrap.servers")


def check_stream(stream: Any, what: str) -> None:
    if stream is not None and not isinstance(stream, Stream):
        raise DefinitionError(f"{what}: stream is {stream!r}; give a KafkaStream or a FolderStream")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _pairs(values: Any, what: str) -> tuple[tuple[str, str], ...]:
    """Names with texts. Errors do not show texts: they may be secrets."""
    try:
        items = [(name, text) for name, text in (dict(values) if values else {}).items()]
    except (TypeError, ValueError):
        raise DefinitionError(f"{what} is not a mapping; give a dict of names and texts") from None
    for name, text in items:
        if not isinstance(name, str) or not isinstance(text, str):
            kind = type(text).__name__
            raise DefinitionError(f"{what}: {name!r} is a {kind}; names and values are texts")
    return tuple(items)
