"""A result can be opened by any reader, whatever its types, and is replaced only by such a one."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import windrow as wr
from windrow import agg
from windrow.errors import SchemaError, StorageError
from windrow.features.run import results
from windrow.features.strategies.slices import write_file
from windrow.storage.store import Store

NOON = dt.datetime(2021, 9, 30, 12)
NTZ = pa.timestamp("us")
EVENTS = pa.table(
    {
        "user": pa.array([1, 1, 2], pa.int64()),
        "n": pa.array([5, 7, 9], pa.int64()),
        "ts": pa.array([1_000, 2_000, 3_000], pa.int64()),
        "seen": pa.array([NOON, NOON, None], NTZ),
        "raw": pa.array([b"a", b"\x00", None], pa.binary()),
        "steps": pa.array([[("a", NOON)], None, []], pa.map_(pa.string(), NTZ)),
    }
)
QUERIES = pa.table(
    {
        "user": pa.array([1, 2, 3], pa.int64()),
        "ts": pa.array([10_000] * 3, pa.int64()),
        "steps": pa.array([[("b", NOON)], None, []], pa.map_(pa.string(), NTZ)),
        "odd, name.": ["x", "y", "z"],
    }
)


@pytest.fixture
def project(spark: Any, tmp_path: Path) -> wr.Project:
    pq.write_table(EVENTS, tmp_path / "events.parquet")
    pq.write_table(QUERIES, tmp_path / "queries.parquet")
    return wr.Project(tmp_path / "state", spark=spark)


def join(folder: Path, *aggregations: Any, **options: Any) -> wr.Join:
    events = wr.EventSource("views", str(folder / "events.parquet"), time="ts")
    group = wr.GroupBy("g", events, ["user"], aggregations or [agg.count("n")])
    queries = wr.Queries(str(folder / "queries.parquet"), time="ts", select=options.pop("of", None))
    return wr.Join("j", queries, [group], **options)


def stored(folder: Path) -> list[dict[str, Any]]:
    table = DeltaTable(str(folder / "state" / "results" / "j")).to_pyarrow_table()
    rows: list[dict[str, Any]] = table.sort_by("user").to_pylist()
    return rows


@pytest.mark.parametrize("strategy", ["merge", "broadcast", "tiles"])
def test_times_without_a_zone_as_keys_and_values_of_maps(
    project: wr.Project, tmp_path: Path, strategy: str
) -> None:
    project.backfill(join(tmp_path, of=["user", "ts"]))  # a plain result, to be replaced
    features = [
        agg.histogram("seen"),
        agg.sum("n").by("seen"),
        agg.last("seen"),
        agg.last_k("seen", 2),
        agg.last("steps"),
        agg.histogram("raw"),
    ]
    frame = project.backfill(join(tmp_path, *features), strategy=strategy)
    (first, second, third) = stored(tmp_path)
    assert first == {
        "user": 1,
        "ts": 10_000,
        "steps": [("b", NOON)],
        "odd, name.": "x",
        "g_seen_histogram": [(NOON, 2)],
        "g_n_sum_by_seen": [(NOON, 12)],
        "g_seen_last": NOON,
        "g_seen_last_2": [NOON, NOON],
        "g_steps_last": [("a", NOON)],
        "g_raw_histogram": [(b"\x00", 1), (b"a", 1)],
    }
    assert second["g_seen_histogram"] is None
    assert third["steps"] == []
    read = {row["user"]: row.asDict() for row in frame.collect()}
    assert read[1]["g_seen_histogram"] == {NOON: 2}
    assert read[1]["steps"] == {"b": NOON}
    project.backfill(join(tmp_path))  # and a plain one replaces it
    assert [row["g_n_count"] for row in stored(tmp_path)] == [2, 1, 0]


def test_such_times_in_the_first_result_and_in_many_queries(
    project: wr.Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windrow.features.limits.FEW_QUERIES", 0)
    project.backfill(join(tmp_path, agg.histogram("seen"), derive={"m": "steps"}))
    assert [row["m"] for row in stored(tmp_path)] == [[("b", NOON)], None, []]


UNSTORABLE = {
    "no type": ({"x": "NULL"}, "column 'x': type null is not supported"),
    "an interval": ({"x": "INTERVAL 1 DAY"}, "column 'x': .*Delta tables cannot store intervals"),
    "a variant": ({"x": "parse_json('1')"}, "column 'x': type variant is not supported"),
    "names alike": ({"x": "named_struct('a', 1, 'A', 2)"}, "Duplicate field name"),
    "a left column": ({"USER": "1"}, "column 'USER' occurs twice"),
    "a feature": ({"G_n_count": "1"}, "column 'G_n_count' occurs twice"),
    "a typo": ({"x": "g_n_cout + 1"}, r"derive\['x'\]: .*g_n_cout"),
}


@pytest.mark.parametrize("name", UNSTORABLE)
def test_what_cannot_be_stored_is_refused_before_anything_is_computed(
    project: wr.Project, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    derive, message = UNSTORABLE[name]
    project.backfill(join(tmp_path))
    before = stored(tmp_path)

    def computed(*_: Any) -> Any:
        raise AssertionError("computed")

    monkeypatch.setattr("windrow.features.run.backfill.BackfillRun._features", computed)
    with pytest.raises(SchemaError, match=f"^Join 'j': .*{message}"):
        project.backfill(join(tmp_path, derive=derive))
    assert stored(tmp_path) == before


def test_a_left_column_with_the_name_of_a_feature(project: wr.Project, tmp_path: Path) -> None:
    options = {"of": {"user": "user", "ts": "ts", "G_N_COUNT": "1"}}
    with pytest.raises(SchemaError, match="Join 'j': column 'g_n_count' occurs twice"):
        project.backfill(join(tmp_path, **options))


def test_a_result_that_was_damaged_is_named(project: wr.Project, tmp_path: Path) -> None:
    project.backfill(join(tmp_path))
    log = tmp_path / "state" / "results" / "j" / "_delta_log"
    for file in log.iterdir():
        file.write_text("{")
    with pytest.raises(StorageError, match=r"results/j: the Delta table .* cannot be opened"):
        project.backfill(join(tmp_path))


def test_files_of_replaced_results_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, schema = Store.at(tmp_path / "j"), pa.schema([("n", pa.int64())])

    def rerun(times: int) -> list[str]:
        """What the newest results consist of, oldest first."""
        for number in range(times):
            part = write_file(store, pa.table({"n": [number]}), "run")
            results.commit_result(store, schema, [part])
            paths.append(part.path)
        return paths

    paths: list[str] = []
    died = write_file(store, pa.table({"n": [-1]}), "run").path
    rerun(5)
    assert store.names() == sorted([died, *paths])  # all of them are young
    monkeypatch.setattr(results, "KEPT_HOURS", 0)
    rerun(2)
    assert store.names() == sorted([died, *paths[-3:]])  # a run that died may be resumed
    monkeypatch.setattr(results, "RESUMED_HOURS", 0)
    rerun(1)
    assert store.names() == sorted(paths[-3:])
    assert DeltaTable(store.uri).to_pyarrow_table().to_pylist() == [{"n": 0}]
    assert DeltaTable(store.uri, version=6).to_pyarrow_table().to_pylist() == [{"n": 1}]
