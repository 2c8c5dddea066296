"""Plans of the first rows of groups, by what they keep.

    plan        keeps                                              needs
    monotonic   the first rows                                     rows that only come, no offset
    bounded     the rows of each group                             groups known to be small
    stack       the rows, and the first of ever coarser buckets    nothing
    sorted      the rows in order, and the first rows              nothing

The plan that has Spark compute whole groups is `TopK`.
"""

from __future__ import annotations

from dataclasses import dataclass

from windrow.views.plan.hints import GroupSize
from windrow.views.plan.nodes import Arrangement, TopRows


@dataclass(frozen=True)
class SortedTop(TopRows):
    """All rows in order, in which the next ones are found; and the first rows as they are."""

    rows: Arrangement
    tops: Arrangement

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        return (self.rows, self.tops)

    @property
    def details(self) -> tuple[str, ...]:
        return (f"sorted: the next rows are found in the sorted ones ({self.why})",)


@dataclass(frozen=True)
class MonotonicTop(TopRows):
    """The first rows, and nothing else: what is behind them never comes back."""

    tops: Arrangement

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        return (self.tops,)

    @property
    def details(self) -> tuple[str, ...]:
        if self.limit == 1 and self.function == "row_number":
            what = "monotonic top-1: one row of each group is kept"
        elif self.function == "row_number":
            what = f"monotonic: at most {self.limit:,} rows of each group are kept"
        else:
            what = f"monotonic: the rows whose {self.function} is at most {self.limit:,} are kept"
        if not self.groups:
            what = what.replace(" of each group", "")
        return (f"{what}, others are dropped before they are exchanged ({self.why})",)


@dataclass(frozen=True)
class BoundedTop(TopRows):
    """The rows of each group, which are few: all of them are looked at."""

    rows: Arrangement

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        return (self.rows,)

    @property
    def details(self) -> tuple[str, ...]:
        return (f"bounded: the rows are kept, and nothing else ({self.why})",)


@dataclass(frozen=True)
class StackedTop(TopRows):
    """A stack of reductions over buckets, the finest first; the last has one bucket a group.

    `levels` are what each keeps, its input, and the number of buckets; `bucket` is their column.
    """

    levels: tuple[tuple[int, Arrangement], ...]
    bucket: str
    size: GroupSize  # that is expected of groups

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        return tuple(arrangement for _, arrangement in self.levels)

    @property
    def stacks(self) -> tuple[tuple[Arrangement, ...], ...]:
        return (self.arrangements,)

    @property
    def details(self) -> tuple[str, ...]:
        if len(self.levels) == 1:
            what = "stack of one level: the rows are kept, and nothing else"
        else:
            what = (
                f"stack of {len(self.levels)} levels, each of which passes on the first "
                f"{self.depth:,} of a bucket"
            )
        return (f"{what} ({self.why})", f"levels for {self.size}")
