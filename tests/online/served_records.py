"""Records in a store as an upload writes them, without Spark: a group and joins of it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from windrow import EventSource, GroupBy, agg
from windrow.features.inputs.layout import EVENT_TIME, Layout
from windrow.online.derived import Derived
from windrow.online.folding import Batch, Folding
from windrow.online.generations import Generation, GroupNote, note_name
from windrow.online.keys import key_bytes
from windrow.online.plans import ServedGroupUse, ServedJoin, join_note
from windrow.online.served import ServedGroup
from windrow.online.stores.store import RecordStore

NOW = 1_717_200_000_000
HOUR = 3_600_000
ROWS: list[tuple[str, int, float, str | None]] = [
    ("ann", NOW - 3, 1.5, "home"),
    ("bob", NOW - 2 * HOUR, float("nan"), "a/b"),
    ("ann", NOW - 5 * HOUR, 2.25, None),
    ("ann", NOW + 5, 100.0, "later"),
]


def group() -> GroupBy:
    return GroupBy(
        "activity",
        EventSource("views", table="views", time="ts"),
        ["user"],
        [
            agg.count("price").over("1h", "7d"),
            agg.sum("price").over("7d"),
            agg.last("page").over("7d"),
            agg.last_k("page", 2).over("7d"),
            agg.histogram("page").over("7d"),
        ],
        max_staleness="1h",
    )


def filled(
    store: RecordStore,
    rows: Sequence[tuple[str, int, float, str | None]] = ROWS,
    *,
    number: int = 1,
    refuses_stale: bool = False,
) -> None:
    """Records of users in a generation, which is served."""
    layout = Layout((pa.string(),), ("price", "page"), (pa.float64(), pa.string()), (), False)
    made = ServedGroup(group(), layout, HOUR, refuses_stale)
    served = ServedGroup.from_json(made.to_json())
    users, times, prices, pages = zip(*rows, strict=True)
    table = pa.table({"k0": users, EVENT_TIME: times, "v0": prices, "v1": pages})
    batch = Batch.of(served, table)
    records = Folding(served, batch, NOW, (0,))([None] * batch.keys.num_rows)
    found = zip(key_bytes(number, batch.keys), records, strict=True)
    store.load((key, record) for key, record in found if record is not None)
    generation = Generation(number, served, NOW, (0,), (NOW,), True)
    store.change_note(note_name("activity"), lambda _: GroupNote(generation).written())


def joined(store: RecordStore, name: str = "training") -> None:
    """A join that uses the group twice, by two keys."""
    names = [feature.name for feature in group().features]
    uses = tuple(
        ServedGroupUse("activity", (key,), tuple(f"{key}_{one}" for one in names))
        for key in ("buyer", "seller")
    )
    raw = ServedJoin(name, uses, Derived(), "v1").written()
    store.change_note(join_note(name), lambda _: raw)
