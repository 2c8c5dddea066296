"""The columns that a message has on its way: what it says, where it is from, what is wrong.

Names of our own begin with `__windrow_`, which no column of a user does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import Column

OWN = "__windrow_"
VALUE = "__windrow_value"  # the bytes of a message; of a file, those of a line
FIELDS = "__windrow_fields"  # its columns, as a struct
CORRUPT = "__windrow_corrupt"  # the text of what could not be read
REASON = "__windrow_reason"
IMAGE = "__windrow_image"
PRODUCED = "__windrow_produced"  # when it was sent, in milliseconds
BAD = "__windrow_bad"  # of a message that becomes no row: why, whence, and its bytes
UNIT = "__windrow_unit"  # a partition of Kafka or of a file; with PLACE, names one message
PLACE = "__windrow_place"

TOPIC, PARTITION, OFFSET, FILE = (
    "__windrow_topic",
    "__windrow_partition",
    "__windrow_offset",
    "__windrow_file",
)

# What the quarantine says of a message.
QUARANTINE = pa.schema(
    [
        ("reason", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("file", pa.string()),
        ("message", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def bad(reason: Any, message: Any) -> Column:
    """The struct `BAD` of a message; NULL if there is no reason."""
    from pyspark.sql import functions as F  # noqa: N812

    struct = F.struct(
        reason.alias("reason"),
        F.col(TOPIC).alias("topic"),
        F.col(PARTITION).alias("partition"),
        F.col(OFFSET).alias("offset"),
        F.col(FILE).alias("file"),
        message.alias("message"),
    )
    return F.when(reason.isNotNull(), struct).alias(BAD)
