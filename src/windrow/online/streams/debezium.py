"""Debezium's envelope: a change of a row, with the images before and after it.

    {"op": "u", "before": {...}, "after": {...}, "source": {"ts_ms": ...}, "ts_ms": ...}

`op` is c (create), r (read by a snapshot), u (update) or d (delete). The time of a change is when
it was made in the database, `source.ts_ms`. With the schema in each message, all of that is beneath
`payload`. The empty message that follows each delete, for Kafka's compaction, is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.errors import SchemaError
from windrow.online.streams.messages import FIELDS, IMAGE, REASON
from windrow.sources.changes import UpdateColumns
from windrow.sources.definitions import EntitySource

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_IS_BEFORE, _ROW, _SIGN, _AT = "is_before", "row", "sign", "__windrow_changed_at"


def message(columns: StructType) -> StructType:
    """The schema of a message; `columns` are those of an image."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    plain = [
        StructField("before", columns),
        StructField("after", columns),
        StructField("op", StringType()),
        StructField("ts_ms", LongType()),
        StructField("source", StructType([StructField("ts_ms", LongType())])),
    ]
    return StructType([*plain, StructField("payload", StructType(plain))])


def images(
    frame: DataFrame, source: EntitySource, rows: StructType, columns: StructType
) -> tuple[DataFrame, dict[str, Column]]:
    """A row for each image of a message, or one with the reason why there is none.

    The image is in `IMAGE`; what is returned besides are the columns that say when and how.
    """
    from pyspark.sql import functions as F  # noqa: N812

    def found(name: str) -> Column:
        return F.coalesce(F.col(FIELDS)["payload"][name], F.col(FIELDS)[name])

    op, before, after = found("op"), found("before"), found("after")
    at = F.coalesce(found("source")["ts_ms"], found("ts_ms"))
    full = "before is missing: the database has to log whole rows (REPLICA IDENTITY FULL)"
    reason = F.coalesce(
        F.col(REASON),
        F.when(op.isNull(), "not an envelope of Debezium: it has no op"),
        F.when(~op.isin("c", "r", "u", "d"), F.concat(F.lit("op is "), op)),
        F.when(op.isin("c", "r", "u") & after.isNull(), "after is missing"),
        F.when(op.isin("u", "d") & before.isNull(), full),
        F.when(at.isNull(), "source.ts_ms is missing"),
    )

    def image(row: Column, is_before: bool, sign: Column) -> Column:
        return F.struct(
            row.alias(_ROW), F.lit(is_before).alias(_IS_BEFORE), sign.alias(_SIGN), at.alias(_AT)
        )

    gone = F.when(op == "u", "update_preimage").otherwise("delete")
    come = F.when(op == "u", "update_postimage").otherwise("insert")
    both = F.array(image(before, True, gone), image(after, False, come))
    chosen = (
        F.when(reason.isNotNull(), F.slice(both, 1, 1))
        .when(op == "d", F.slice(both, 1, 1))
        .when(op == "u", both)
        .otherwise(F.slice(both, 2, 1))
    )
    kept = [F.col(name) for name in frame.columns if name not in (FIELDS, REASON)]
    exploded = frame.select(*kept, reason.alias(REASON), F.explode(chosen).alias(IMAGE))
    changes = UpdateColumns.of(source, source.feed)
    sign = F.col(IMAGE)[_IS_BEFORE if source.feed == "mutations" else _SIGN]
    time = _time(F.col(IMAGE)[_AT], source, rows[changes.known_at].dataType.simpleString())
    names = [name for name in exploded.columns if name != IMAGE]
    flat = exploded.select(
        *(F.col(name) for name in names),
        F.col(IMAGE)[_ROW].alias(IMAGE),
        sign.alias(_SIGN),
        time.alias(_AT),
    )
    return flat, {changes.sign: F.col(_SIGN), changes.known_at: F.col(_AT)}


def _time(millis: Column, source: EntitySource, wanted: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    if wanted == "bigint":
        return millis
    if wanted in ("timestamp", "timestamp_ntz"):
        return F.timestamp_millis(millis).cast(wanted)
    raise SchemaError(
        f"{source.what}: mutation_time {source.known_at!r} is {wanted}; for a stream it has to be "
        "TIMESTAMP, or BIGINT milliseconds"
    )
