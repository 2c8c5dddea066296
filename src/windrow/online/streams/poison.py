"""Messages that make a job fail: they are found by halving, and set aside.

Spark says what went wrong, but not with which message. So a micro-batch that fails for what its
data are is tried in halves, and the halves in halves, until single messages are left that fail by
themselves. All others are taken in. It takes a few jobs for each such message, and happens only
then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.errors import DataError
from windrow.online.streams.messages import BAD, CORRUPT, OWN, PLACE, UNIT, VALUE, bad
from windrow.spark.errors import known_errors
from windrow.spark.schemas import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

MOST = 100  # messages of a micro-batch: with more, it is not the messages that are wrong
Parse = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True)
class Isolated:
    """Messages that fail: of each its unit, its place there, and the reason."""

    poison: tuple[tuple[int, int, str], ...]

    def condition(self) -> Column:
        """Whether a message is one of them."""
        from pyspark.sql import functions as F  # noqa: N812

        found = F.lit(False)
        for unit in sorted({unit for unit, _, _ in self.poison}):
            places = [place for one, place, _ in self.poison if one == unit]
            found |= (F.col(UNIT) == unit) & F.col(PLACE).isin(places)
        return found

    def set_aside(self, messages: DataFrame, schema: StructType) -> DataFrame:
        """Them, with the columns that rows have."""
        from pyspark.sql import functions as F  # noqa: N812

        reason: Column = F.lit(None).cast("string")
        for unit, place, why in self.poison:
            here = (F.col(UNIT) == unit) & (F.col(PLACE) == place)
            reason = F.when(here, F.lit(why)).otherwise(reason)
        message = F.col(VALUE)
        if CORRUPT in messages.columns:  # rows of files, which are no text
            own = [quoted(name) for name in messages.columns if not name.startswith(OWN)]
            message = F.to_json(F.struct(*own)).cast("binary")
        columns = [
            bad(reason, message)
            if field.name == BAD
            else F.col(field.name)
            if field.name in messages.columns and field.name.startswith(OWN)
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in schema
        ]
        return messages.where(self.condition()).select(*columns)


def isolate(messages: DataFrame, parse: Parse) -> Isolated:
    """The messages that fail by themselves."""
    from pyspark.sql import functions as F  # noqa: N812

    bounds = messages.groupBy(UNIT).agg(F.min(PLACE), F.max(PLACE)).collect()  # a row per partition
    poison: list[tuple[int, int, str]] = []
    for unit, first, last in bounds:
        todo = [(first, last)]
        while todo:
            low, high = todo.pop()
            here = (F.col(UNIT) == unit) & F.col(PLACE).between(low, high)
            reason = _fails(parse(messages.where(here)))
            if reason is None:
                continue
            if low == high:
                poison.append((unit, low, reason))
                if len(poison) > MOST:
                    raise DataError(
                        f"more than {MOST} messages of one micro-batch fail, such as {reason}; "
                        "correct the expressions of the source or its stream"
                    )
                continue
            middle = (low + high) // 2
            todo += [(middle + 1, high), (low, middle)]
    return Isolated(tuple(poison))


def _fails(rows: DataFrame) -> str | None:
    """Why these rows cannot be made; None if they can."""
    try:
        with known_errors():
            rows.write.format("noop").mode("overwrite").save()
    except DataError as error:
        return str(error)
    return None
