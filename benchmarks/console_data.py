"""A large catalogue, made without Spark: views, tables and served groups by the hundred.

Definitions are committed to a history, and notes of groups to a store, by the functions that the
project itself uses. Views share a few collections with rows, and ticks have notes of operators.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from windrow import EventSource, GroupBy, Join, Queries, agg
from windrow.console.looking import Definitions
from windrow.features.inputs.layout import Layout
from windrow.online.derived import Derived
from windrow.online.generations import Generation, change_note, new_generation
from windrow.online.plans import ServedGroupUse, ServedJoin, join_note
from windrow.online.served import ServedGroup, travelling
from windrow.project import Project
from windrow.storage.store import Store
from windrow.time import now_millis
from windrow.views.history.commits import DEFINE, TICK, WRITE, Commit
from windrow.views.history.history import History

COLUMNS = pa.schema([("listing", pa.int64()), ("title", pa.string()), ("stars", pa.float64())])
_FIELDS = [("listing", "long"), ("title", "string"), ("stars", "double")]
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": type_, "nullable": True, "metadata": {}}
            for name, type_ in _FIELDS
        ],
    }
)
WINDOWS = ("1h", "6h", "1d", "3d", "7d", "14d", "30d")
PLAN = """Project [listing, avg(stars) AS stars]
  Reduce avg(stars), min(stars) by listing
    - accumulable: states are updated in place, no values are kept
    - keeps totals by (listing): listing, rows_of_group
    Project [listing, stars]
      Input {input}"""


def rows(titles: list[str | None]) -> pa.Table:
    """Rows of a table."""
    count = len(titles)
    stars = [1.0 + number % 5 for number in range(count)]
    return pa.table([list(range(count)), titles, stars], schema=COLUMNS)


def table(collection: str) -> dict[str, Any]:
    """The definition of a table."""
    definition = {"kind": "table", "schema": SCHEMA, "key": ["listing"], "defaults": {}}
    return {**definition, "collection": collection, "created": 0}


def view(collection: str, totals: str, inputs: list[str], sql: str | None = None) -> dict[str, Any]:
    """The definition of a view."""
    plan = PLAN.format(input=inputs[0])
    title = "Reduce avg(stars), min(stars) by listing"
    kept = {"operator": 1, "title": title, "what": "totals", "key": ["listing"], "level": None}
    own = {"operator": -1, "title": "View", "what": "its rows", "key": ["listing", "stars"]}
    return {
        "kind": "view",
        "collection": collection,
        "schema": SCHEMA,
        "sql": sql or f"SELECT listing, avg(stars) AS stars FROM {inputs[0]} GROUP BY listing",
        "settings": {},
        "inputs": inputs,
        "arrangements": {"totals": totals},
        "plan": plan,
        "properties": {},
        "comment": None,
        "choices": {},
        "append_only": [],
        "only_grows": False,
        "keeps": [
            {**kept, "collection": totals, "records": 40, "keys": 40},
            {**own, "collection": collection, "records": 40, "keys": 40},
        ],
    }


def tick_note(views: list[str]) -> dict[str, Any]:
    """What a tick says: changes, and what operators did."""
    did = [[-1, 2, 2, 0, 2, 2521, 0.0038], [1, 2, 2, 1, 4, 5080, 0.0303]]
    runs = {name: {"seconds": 0.108, "operators": did} for name in views}
    return {"changes": dict.fromkeys(views, 2), "operators": runs}


def fill(
    root: Path,
    tables: Mapping[str, list[str | None]],
    views: Mapping[str, list[str]],
    *,
    ticks: int = 3,
    late: str | None = None,
    collections: int = 8,
) -> None:
    """A history with tables of titles and views by what they read; `late` has a later change."""
    history = History(Store.at(root))
    pool = [history.create_collection(COLUMNS, ["listing"]) for _ in range(collections)]
    created: dict[str, dict[str, Any]] = {id: {"retain": "history"} for id in pool}
    own = {name: history.create_collection(COLUMNS, ["listing"]) for name in tables}
    created |= {id: {"retain": "history"} for id in own.values()}
    catalogue = {name: table(own[name]) for name in tables}
    for number, (name, inputs) in enumerate(views.items()):
        place, totals = pool[number % len(pool)], pool[(number + 1) % len(pool)]
        catalogue[name] = view(place, totals, inputs)
    history.commit(Commit(DEFINE, history.next_time(), created=created, catalogue=catalogue))
    for name, titles in tables.items():
        write(history, own[name], rows(titles), f"INSERT INTO {name} VALUES ...")
    for number in range(ticks):
        time = history.next_time()
        appends = {
            id: history.collection(id).writer(time).write(rows([f"t{number}"]).to_batches()).parts
            for id in pool
        }
        note = tick_note(list(views))
        history.commit(Commit(TICK, time, appends=appends, ticked=time, note=note))
    if late is not None:
        write(history, own[late], rows(["late"]), f"UPDATE {late} SET stars = 1")


def write(history: History, collection: str, added: pa.Table, sql: str) -> None:
    """Append rows to a table, as a statement does."""
    time = history.next_time()
    written = history.collection(collection).writer(time).write(added.to_batches())
    history.commit(Commit(WRITE, time, appends={collection: written.parts}, note={"sql": sql}))


def group(name: str, features: int = 20, source: str = "views") -> GroupBy:
    """A group with so many features."""
    events = EventSource(name=source, table="events", time="ts")
    each = -(-features // len(WINDOWS))
    made = [agg.sum(f"column_{number}").over(*WINDOWS) for number in range(each)]
    made[-1] = agg.sum(f"column_{each - 1}").over(*WINDOWS[: features - len(WINDOWS) * (each - 1)])
    return GroupBy(name=name, source=events, keys=["user_id"], aggregations=made)


def put_online(project: Project, groups: list[GroupBy], max_staleness: int | None = None) -> None:
    """Notes of groups, as an upload leaves them; there are no records."""
    now = now_millis()
    for one in groups:
        columns = tuple(dict.fromkeys(a.column for a in one.aggregations))
        layout = Layout((pa.int64(),), columns, (pa.float64(),) * len(columns), (), False)
        served = travelling(ServedGroup(one, layout, max_staleness))
        number = new_generation(project.records)
        made = Generation(number, served, now, (0,), (now - 1_000,), True)
        change_note(project.records, one.name, lambda note, made=made: note.stages(made).promoted())


def put_join_online(project: Project, name: str, groups: list[GroupBy]) -> None:
    """The note of a join of these groups."""
    names = {one.name: tuple(f"{one.name}_{f.name}" for f in one.features) for one in groups}
    uses = tuple(ServedGroupUse(one.name, tuple(one.keys), names[one.name]) for one in groups)
    raw = ServedJoin(name, uses, Derived(), "1").written()
    project.records.change_note(join_note(name), lambda before: raw)


def large(root: Path, views: int = 500, groups: int = 250, features: int = 20) -> Definitions:
    """A project with many views (some over others), and many features in served groups."""
    tables = {f"table_{number}": [f"title {number}", None] for number in range(20)}
    made: dict[str, list[str]] = {}
    for number in range(views):
        over = f"view_{number // 3}" if number % 3 == 2 and number > 2 else f"table_{number % 20}"
        made[f"view_{number}"] = [over]
    fill(root, tables, made, ticks=8, late="table_3")
    project = Project(root, progress=False)
    some = [group(f"group_{number}", features, f"source_{number % 10}") for number in range(groups)]
    put_online(project, some)
    joins = {}
    for number in range(0, groups, 25):
        name = f"join_{number // 25}"
        own = some[number : number + 25]
        put_join_online(project, name, own)
        joins[name] = Join(name=name, left=Queries(table="queries", time="ts"), features=own)
    sources = {one.sources[0].name: one.sources[0] for one in some}
    return Definitions(joins, {one.name: one for one in some}, sources)
