"""Arrangements as tasks read them: at a time, cut alike, or looked up by key.

>>> import pyarrow as pa, tempfile
>>> from windrow.shard import Shard
>>> shard = Shard.create(tempfile.mkdtemp() + "/a", pa.schema([("k", pa.int64())]), key=["k"])
>>> shard.append(pa.table({"k": [1, 2, 2]}), lower=0, upper=10)
True
>>> arrangement = Arrangement.at(shard)
>>> arrangement.lookup(pa.table({"k": [2]})).to_pylist()
[{'k': 2, '_diff': 2}]
>>> cuts = cut_alike([arrangement], 2)
>>> slices = arrangement.slices(cuts, range(len(cuts) + 1))
>>> sum(rows.num_rows for rows in slices)
2
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from windrow.arrangements.rows import SortedRows, bounds_of
from windrow.shard.cache import PartCache
from windrow.shard.keys import KeySet
from windrow.shard.merge import Consolidation, read_slice
from windrow.shard.part import Part
from windrow.shard.plan import even_cuts, plan_read
from windrow.shard.scan import Bound, Counters, Scan
from windrow.shard.shard import Shard
from windrow.shard.spec import PREFIX
from windrow.updates import DIFF


@dataclass(frozen=True)
class Arrangement:
    """The content of an arrangement at a time. Picklable: tasks carry it."""

    scan: Scan
    parts: tuple[Part, ...]

    @staticmethod
    def at(
        shard: Shard, time: int | None = None, *, columns: Sequence[str] | None = None
    ) -> Arrangement:
        """As it was at `time` (by default the newest), with `columns` (by default all)."""
        read = shard.snapshot(time, columns=columns)
        parts = tuple(part for part in read.parts if read.scan.may_hold(part))
        return Arrangement(replace(read.scan, cache=None), parts)

    @property
    def rows(self) -> int:
        """Updates in its parts: its rows are at most as many."""
        return sum(part.rows for part in self.parts)

    def slices(self, cuts: Sequence[Bound], numbers: range) -> Iterator[pa.Table]:
        """The rows of neighbouring slices, each once, with its multiplicity in `_diff`.

        They are in the order of the arrangement; all rows of a key are in one slice.
        """
        if not numbers:
            return
        bounds = bounds_of(cuts, numbers[0], numbers[-1])
        rows = SortedRows(self.scan, self.parts, bounds, Consolidation.FULL)
        for number in numbers:
            yield rows.below(bounds_of(cuts, number, number)[1]).drop_columns([PREFIX])

    def lookup(self, keys: pa.Table) -> pa.Table:
        """The rows of `keys`, each once, with its multiplicity in `_diff`.

        The parts that are touched are kept on local disk, in a form that can be searched.
        """
        scan = replace(self.scan, keys=KeySet.make(keys, self.scan.spec), cache=PartCache.default())
        batches = [
            batch
            for slice_ in plan_read(scan, self.parts, 1).slices
            for batch in read_slice(scan, slice_, Consolidation.FULL, Counters())
        ]
        table = pa.Table.from_batches(batches, scan.output_schema)
        return table.select([*scan.columns, DIFF])


def cut_alike(arrangements: Sequence[Arrangement], slices: int) -> tuple[Bound, ...]:
    """The prefixes between about `slices` slices that hold evenly many rows of all of them.

    No key is cut: whatever an arrangement holds of a key is in the slice of the same number of
    each. Their keys have to be of the same types.
    """
    parts = [part for one in arrangements for part in one.parts]
    return tuple(even_cuts(parts, slices, None))
