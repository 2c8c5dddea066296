"""TPC-H: its data by tpchgen-cli, its 22 queries, and changes in the manner of its refresh streams.

A tenth of the orders is held back. Each batch inserts some of them with their lineitems, deletes
others with theirs, and gives some customers, suppliers and parts values of other ones.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from view_cases import parse

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
QUERIES = {
    name: case.view.query for name, case in parse(Path(__file__).with_name("tpch.sql")).items()
}
KEYS = {"customer": "c_custkey", "supplier": "s_suppkey", "part": "p_partkey"}
# What updates change: columns that the queries filter, join or group by, or sum.
UPDATED = {
    "customer": ["c_nationkey", "c_phone", "c_acctbal", "c_mktsegment"],
    "supplier": ["s_nationkey", "s_acctbal", "s_comment"],
    "part": ["p_name", "p_brand", "p_type", "p_size", "p_container"],
}


def generate(folder: Path, scale: str) -> dict[str, pa.Table]:
    """All tables at a scale, with plain strings."""
    command = [str(Path(sys.executable).parent / "tpchgen-cli"), "parquet", "-s", scale]
    subprocess.run([*command, f"--output-dir={folder}"], check=True, capture_output=True)
    return {name: _plain(pq.read_table(folder / f"{name}.parquet")) for name in TABLES}


def _plain(table: pa.Table) -> pa.Table:
    views = pa.types.is_string_view
    types = [pa.field(f.name, pa.string() if views(f.type) else f.type) for f in table.schema]
    return table.cast(pa.schema(types)).combine_chunks()


@dataclass
class Refresh:
    """The tables as they are, the orders that are still to come, and the next changes."""

    tables: dict[str, pa.Table]
    waiting: dict[str, pa.Table]
    rng: np.random.Generator

    @classmethod
    def of(cls, tables: dict[str, pa.Table], seed: int = 0) -> Refresh:
        keys = tables["orders"].column("o_orderkey")
        last = pc.greater(keys, pc.quantile(keys, 0.9)[0])
        chosen = keys.filter(last)
        now, waiting = dict(tables), {}
        for name, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            late = pc.is_in(tables[name].column(key), chosen)
            now[name] = tables[name].filter(pc.invert(late))
            waiting[name] = tables[name].filter(late)
        return cls(now, waiting, np.random.default_rng(seed))

    def batch(self, orders: int = 40, others: int = 6) -> dict[str, pa.Table]:
        """The next changes by table, with `_diff`; `tables` is what they make of it."""
        changes = self._orders(orders)
        for name in UPDATED if others else ():
            changes[name] = self._updates(name, others)
        for name, change in changes.items():
            self.tables[name] = _applied(self.tables[name], change)
        return changes

    def _orders(self, count: int) -> dict[str, pa.Table]:
        coming = self.waiting["orders"].column("o_orderkey").slice(0, count)
        there = self.tables["orders"].column("o_orderkey")
        going = there.take(pa.array(self.rng.choice(len(there), count, replace=False)))
        changes = {}
        for name, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            comes = pc.is_in(self.waiting[name].column(key), coming)
            goes = pc.is_in(self.tables[name].column(key), going)
            changes[name] = _changes(
                self.tables[name].filter(goes), self.waiting[name].filter(comes)
            )
            self.waiting[name] = self.waiting[name].filter(pc.invert(comes))
        return changes

    def _updates(self, name: str, count: int) -> pa.Table:
        table = self.tables[name]
        before = table.take(pa.array(self.rng.choice(len(table), count, replace=False)))
        others = table.take(pa.array(self.rng.choice(len(table), count)))
        after = before
        for column in self.rng.choice(UPDATED[name], 2, replace=False):
            at = table.schema.get_field_index(column)
            after = after.set_column(at, table.schema.field(at), others.column(column))
        return _changes(before, after)


def _changes(gone: pa.Table, come: pa.Table) -> pa.Table:
    diffs = np.repeat([-1, 1], [len(gone), len(come)])
    return pa.concat_tables([gone, come]).append_column("_diff", pa.array(diffs, pa.int64()))


def _applied(table: pa.Table, change: pa.Table) -> pa.Table:
    """Every table has a key in its first columns; rows are found by them."""
    gone = change.filter(pc.equal(change.column("_diff"), -1))
    come = change.filter(pc.equal(change.column("_diff"), 1)).drop_columns("_diff")
    keys = gone.column(0)
    kept = table.filter(pc.invert(pc.is_in(table.column(0), keys)))
    assert len(kept) == len(table) - len(gone), "only whole orders go"
    return pa.concat_tables([kept, come]).combine_chunks()


def columns(table: pa.Table) -> str:
    """The columns of a table, as in CREATE TABLE."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema: Any = from_arrow_schema(table.schema)
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in schema)
