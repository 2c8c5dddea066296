"""Definitions of streams: checked when made, by the name of the field; secrets stay secret."""

from __future__ import annotations

import pickle
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import windrow as wr
from windrow import agg, testing
from windrow.commands.arguments import interval
from windrow.errors import DefinitionError, OptionError, WindrowError
from windrow.online.streams.batches import Done
from windrow.online.streams.figures import Figures, line, serve
from windrow.spark import jars
from windrow.workspace import Workspace

KAFKA = {"topic": "views", "servers": "localhost:9092"}


def test_secrets_are_not_shown() -> None:
    stream = wr.KafkaStream(**KAFKA, options={"kafka.sasl.jaas.config": "hush"})
    source = wr.EventSource("views", "t", "ts", stream=stream)
    assert "hush" not in repr(stream) + repr(source) + str(source)
    assert pickle.loads(pickle.dumps(stream)) == stream
    assert hash(stream) == hash(wr.KafkaStream(**KAFKA, options=dict(stream.options)))
    with pytest.raises(DefinitionError) as refused:
        wr.KafkaStream(**KAFKA, options={"kafka.ssl.key.password": ["hush"]})  # type: ignore[dict-item]
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: wr.KafkaStream("", "s"), "topic is ''"),
        (lambda: wr.KafkaStream("a,b", "s"), "name one topic"),
        (lambda: wr.KafkaStream("a", None), "servers is None"),
        (lambda: wr.KafkaStream("a", "s", format="xml"), "format is 'xml'"),
        (lambda: wr.KafkaStream("a", "s", format="avro"), "avro_schema="),
        (lambda: wr.KafkaStream("a", "s", envelope="maxwell"), "envelope is 'maxwell'"),
        (lambda: wr.KafkaStream("a", "s", options={"Subscribe": "b"}), "options has 'Subscribe'"),
        (lambda: wr.KafkaStream("a", "s", schema=" "), "schema is ' '"),
        (lambda: wr.KafkaStream("a", "s", required="k"), "required is 'k'"),
        (lambda: wr.KafkaStream("a", "s", select=["k"]), "select is not a mapping"),
        (lambda: wr.FolderStream(3), "path is 3"),
        (lambda: wr.FolderStream("in", format="csv", envelope="debezium"), "read from JSON"),
        (lambda: wr.EventSource("s", "t", "ts", stream="in"), "stream is 'in'"),
        (lambda: wr.EventSource("s", time="ts", stream=wr.FolderStream("in")), "schema="),
        (lambda: wr.EventSource("s", time="ts"), "table is None"),
        (
            lambda: wr.EventSource(
                "s", "t", "ts", stream=wr.FolderStream("i", envelope="debezium")
            ),
            "give the stream to an EntitySource",
        ),
        (
            lambda: wr.EntitySource("s", "ts", view="v", stream=wr.FolderStream("in")),
            "not with view",
        ),
        (
            lambda: wr.EntitySource(
                "s", "ts", snapshots="t", partition="ds", stream=wr.FolderStream("in")
            ),
            "not with snapshots",
        ),
        (lambda: wr.EntitySource("s", "ts", stream=wr.FolderStream("in")), "schema="),
    ],
)
def test_what_is_wrong_is_named(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        make()
    assert said in str(refused.value)


def test_a_source_with_a_stream_under_unit_test() -> None:
    stream = wr.FolderStream("in", schema="k INT, x INT, ts BIGINT")
    events = wr.EventSource("s", time="ts", stream=stream)
    group = wr.GroupBy("g", events, ["k"], [agg.sum("x")])
    rows = [{"k": 1, "x": 2, "ts": 0}, {"k": 1, "x": 3, "ts": 5}]
    found = testing.features(group, rows, [{"k": 1, "ts": 6}])
    assert found[0]["x_sum"] == 5
    changing = wr.EntitySource("s", "ts", stream=stream)
    group = wr.GroupBy("g", changing, ["k"], [agg.sum("x")])
    changes = [
        {**rows[0], "_change_type": "insert", "_commit_timestamp": 0},
        {**rows[0], "_change_type": "delete", "_commit_timestamp": 9},
    ]
    found = testing.features(group, changes, [{"k": 1, "ts": 6}, {"k": 1, "ts": 10}])
    assert [row["x_sum"] for row in found] == [2, None]


def test_a_project_names_its_streams(tmp_path: Path) -> None:
    (tmp_path / "windrow.toml").write_text('definitions = ["features.py"]')
    (tmp_path / "features.py").write_text(
        "import windrow as wr\n"
        "old = wr.EventSource('old', 't', 'ts')\n"
        "new = wr.EventSource('new', time='ts', stream=wr.FolderStream('in', schema='ts BIGINT'))\n"
    )
    workspace = Workspace.load(tmp_path)
    (source,) = workspace.streamed()
    assert source.name == "new"
    assert isinstance(source.stream, wr.FolderStream)
    assert str(source.stream.path) == str(tmp_path / "in")
    with pytest.raises(DefinitionError, match="'old' has no stream"):
        workspace.streamed(["old"])
    with pytest.raises(DefinitionError, match="did you mean"):
        workspace.streamed(["knew"])


def test_times_of_triggers() -> None:
    assert [interval(text) for text in ("500ms", "2s", "0.5", "0ms")] == [0.5, 2.0, 0.5, 0.0]


def test_figures_are_served() -> None:
    figures = Figures()
    figures.begin("views")
    figures.add(Done("views", 1, 9, 100, 3, 0.5, 2_000, 1_500, 1_000), 7)
    figures.add(Done("views", 2, 9, repeated=True), None)
    server = serve(figures.text, "0")
    try:
        port = server.server_address[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            text = reply.read().decode()
    finally:
        server.shutdown()
        server.server_close()
    for name, value in {
        "rows_total": 100,
        "quarantined_total": 3,
        "batches_total": 1,
        "repeated_total": 1,
        "freshness_seconds": 0.5,
        "lag_messages": 7,
    }.items():
        assert f'windrow_stream_{name}{{stream="views"}} {value}' in text
    assert line(Done("views", 2, 9, repeated=True), None).endswith("it was there already")
    with pytest.raises(OptionError, match="no address"):
        serve(figures.text, "here")


def test_jars_that_nobody_can_fetch_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jars.FOLDER, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert jars.jar_files() == []
    assert jars.with_jars({"spark.x": "1"}) == {"spark.x": "1"}
    with pytest.raises(WindrowError, match=r"Maven \(mvn\).*put spark-sql-kafka.*into"):
        jars.fetch()
    for _, name, version in jars.JARS:
        (tmp_path / f"{name}-{version}.jar").touch()
    assert jars.with_jars({})["spark.jars"].count(".jar") == len(jars.JARS)
    assert "spark.jars" not in jars.with_jars({"spark.jars.packages": "x"})
