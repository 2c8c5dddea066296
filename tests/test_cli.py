"""The commands, in this process; and what they say when something is wrong."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import windrow
from windrow import cli, workspace
from windrow.algebra.windows import Window
from windrow.cli import main
from windrow.commands import explain, render
from windrow.errors import DefinitionError, OptionError
from windrow.project import Project
from windrow.workspace import Workspace

DEFINITIONS = """
import windrow as wr
from windrow import agg

views = wr.EventSource(name="views", table="data/views", time="ts")
activity = wr.GroupBy(
    name="activity", source=views, keys=["user_id"], aggregations=[agg.count("view_id")]
)
training = wr.Join(
    name="training", left=wr.Queries(table="data/checkouts", time="ts"), features=[activity]
)
"""


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as here, whatever terminal the tests run in."""
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project as `windrow init` makes it."""
    folder = tmp_path_factory.mktemp("projects") / "shop"
    assert main(["init", str(folder)]) == 0
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    """Makes a project of the given files."""

    def make(definitions: str = DEFINITIONS, settings: str = "", **files: str) -> Path:
        text = settings or 'definitions = ["features.py"]'
        (tmp_path / "windrow.toml").write_text(text)
        (tmp_path / "features.py").write_text(definitions)
        for name, content in files.items():
            (tmp_path / f"{name}.py").write_text(content)
        return tmp_path

    return make


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a refused command says: one message, no traceback, nothing on standard output."""
    capsys.readouterr()
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("windrow: ")
    assert "Traceback" not in said.err
    return said.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"windrow {windrow.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [[], ["sow"], ["backfill"], ["backfill", "training", "--rows", "-1"]]
)
def test_arguments_that_cannot_be_read(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2


# init


def test_init_makes_the_same_shop_every_time(shop: Path, tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "deep" / "shop")]) == 0
    other = tmp_path / "deep" / "shop"
    names = sorted(str(p.relative_to(shop)) for p in shop.rglob("*") if p.is_file())
    assert {"windrow.toml", "features.py", "README.md"} <= set(names)
    assert "data/views/ds=2024-05-30/part-0.parquet" in names
    assert names == sorted(str(p.relative_to(other)) for p in other.rglob("*") if p.is_file())
    for name in names:
        if name.endswith(".parquet"):
            assert pq.ParquetFile(shop / name).read() == pq.ParquetFile(other / name).read()
        else:
            assert (shop / name).read_bytes() == (other / name).read_bytes()
    sizes = {
        table: sum(
            pq.ParquetFile(f).metadata.num_rows for f in (shop / "data" / table).rglob("*.parquet")
        )
        for table in ("views", "ratings", "checkouts")
    }
    assert sizes == {"views": 20_000, "ratings": 2_000, "checkouts": 500}


def test_views_lie_in_the_folder_of_their_day(shop: Path) -> None:
    for folder in (shop / "data" / "views").iterdir():
        times = pq.ParquetFile(folder / "part-0.parquet").read(["ts"]).column("ts").to_pylist()
        assert {f"ds={time.date().isoformat()}" for time in times} == {folder.name}


def test_init_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert (tmp_path / "windrow.toml").exists()
    assert not list(tmp_path.glob(".windrow-init-*"))


def test_init_overwrites_nothing(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is a project already" in refusal(capsys, "init", str(shop))
    (tmp_path / "features.py").write_text("mine")
    message = refusal(capsys, "init", str(tmp_path))
    assert "features.py, which would be overwritten" in message
    assert [p.name for p in tmp_path.iterdir()] == ["features.py"]
    assert (tmp_path / "features.py").read_text() == "mine"
    assert "is a file" in refusal(capsys, "init", str(tmp_path / "features.py"))


def test_an_interrupted_init_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moved: list[str] = []
    rename = os.rename

    def interrupted(source: Any, target: Any) -> None:
        if len(moved) == 2:
            raise KeyboardInterrupt
        moved.append(str(target))
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    assert main(["init", str(tmp_path / "shop")]) == 130
    assert "Nothing half-written remains" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_a_killed_init_left_is_removed_by_the_next(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid in (ended.pid, os.getpid()):
        (tmp_path / f".windrow-init-{pid}-abc" / "data").mkdir(parents=True)
    assert main(["init", str(tmp_path)]) == 0
    left = [path.name for path in tmp_path.glob(".windrow-init-*")]
    assert left == [f".windrow-init-{os.getpid()}-abc"]  # of one that is still at work


# finding and reading a project


def test_the_nearest_project_upward(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop / "data" / "views")
    assert Workspace.find() == shop
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=r"no windrow\.toml in .*windrow init"):
        Workspace.find()
    with pytest.raises(OptionError, match=r"holds no windrow\.toml"):
        Workspace.find(tmp_path)


def test_the_definitions_of_the_shop_are_found(shop: Path) -> None:
    here = Path.cwd()
    found = Workspace.load(shop)
    assert Path.cwd() == here
    assert list(found.joins) == ["training"]
    assert list(found.groups) == ["activity", "interest", "reputation"]
    assert list(found.sources) == ["views", "ratings"]
    assert found.root == str(shop / "state")
    training = found.join("training")
    assert training.left.table == str(shop / "data" / "checkouts")
    assert found.sources["views"].table == str(shop / "data" / "views")
    assert found.sources["ratings"].changes == str(shop / "data" / "ratings")
    assert {s.stream.path for g in training.groups for s in g.group.sources} == {
        str(shop / "arriving" / "views"),
        str(shop / "arriving" / "ratings"),
    }


def test_names_and_uris_of_tables_are_left_alone(project: Callable[..., Path]) -> None:
    text = DEFINITIONS.replace("data/views", "s3://shop/views").replace("data/checkouts", "orders")
    found = Workspace.load(project(text))
    assert found.sources["views"].table == "s3://shop/views"
    assert found.join("training").left.table == "orders"


def test_settings(project: Callable[..., Path]) -> None:
    text = """
        root = "s3://bucket/state"
        definitions = ["features.py"]
        [storage_options]
        AWS_ALLOW_HTTP = true
        [spark]
        spark.sql.ansi.enabled = false
        "spark.driver.cores" = 2
    """
    found = Workspace.load(project(settings=text))
    assert found.root == "s3://bucket/state"
    assert found.result_uri(found.join("training")) == "s3://bucket/state/results/training"
    assert found.settings.storage_options == {"AWS_ALLOW_HTTP": "true"}
    assert found.settings.spark == {"spark.sql.ansi.enabled": "false", "spark.driver.cores": "2"}


def test_hops_of_a_project(project: Callable[..., Path]) -> None:
    definitions = DEFINITIONS.replace(
        'agg.count("view_id")', 'agg.count("view_id").over("30d", "2m").over("7d", hop="1d")'
    )
    with pytest.raises(DefinitionError, match="hop 5m, the default, is longer than its window"):
        Workspace.load(project(definitions))
    text = "definitions = ['features.py']\n[hops]\n1d = '1h'\n1m = '1m'\n"
    (group,) = Workspace.load(project(definitions, settings=text)).groups.values()
    assert [f.window.hop for f in group.features] == [3_600_000, 60_000, 86_400_000]
    assert Window.make("30d").hop == 86_400_000  # of that project alone


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("root = 'x'\nroot = = 'y'\n", r"windrow.toml is not TOML: .*line 2"),
        ("definition = ['a.py']", "no setting 'definition'; did you mean 'definitions'"),
        ("root = 'state'", "definitions is None; list Python files"),
        ("definitions = 'features.py'", "list Python files"),
        ("definitions = ['gone.py']", "names 'gone.py', but there is no such file"),
        ("definitions = ['features.py']\nroot = 3", "root is 3"),
        ("definitions = ['features.py']\nspark = 3", r"\[spark\] is a number"),
        ("definitions = ['features.py']\n[spark]\na = [1]", r"\[spark\]: a is a list"),
        ("definitions = ['features.py']\n[storage_options]\nk = 1979-05-27", "k is a date or time"),
        ("definitions = ['features.py']\n[spark]\nui = 1", "there is no 'ui'.*spark.ui"),
        ("definitions = ['features.py']\n[hops]\n1h = '1d'", r"\[hops\].*1d', which is longer"),
        ("definitions = ['features.py']\n[hops]\n1d = '7h'", r"\[hops\].*does not divide a day"),
        ("definitions = ['features.py']\n[hops]\nday = '7h'", r"\[hops\].*'day' is not a length"),
        ("definitions = ['features.py']\nhops = '1h'", r"\[hops\] is a text"),
        (
            'definitions = ["features.py"]\nroot = "a\\u0000b"',
            "windrow.toml: root has a NUL character",
        ),
        ('definitions = ["a\\u0000.py"]', "windrow.toml: definitions has a NUL character"),
        (
            'definitions = ["features.py"]\n[spark]\n"spark.a" = "\\u0000"',
            "windrow.toml: spark: spark.a has a NUL character",
        ),
    ],
)
def test_bad_settings(project: Callable[..., Path], settings: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Workspace.load(project(settings=settings))


@pytest.mark.parametrize(
    ("definitions", "line", "message"),
    [
        ("x = 1\ny = = 2\n", 2, "SyntaxError: invalid syntax"),
        ("import windrow as wr\n\nviews = wr.EventSouce()\n", 3, "AttributeError: "),
        (
            "import windrow as wr\nwr.EventSource(\n    name='a b', table='t', time='ts'\n)\n",
            2,
            "EventSource.name: 'a b' is not a name",
        ),
        ("import broken\n", 1, "RuntimeError: no"),
    ],
)
def test_a_mistake_in_a_definition_file_has_its_place(
    project: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    definitions: str,
    line: int,
    message: str,
) -> None:
    folder = project(definitions, broken="raise RuntimeError('no')\n")
    file = "broken.py" if "broken" in definitions else "features.py"
    said = refusal(capsys, "plan", "--project", str(folder))
    assert f"{folder / file}, line {line}: {message}" in said


@pytest.mark.parametrize("text", ["import sys; sys.exit(0)", "exit()", "raise SystemExit('bye')"])
def test_a_definition_file_that_exits(
    project: Callable[..., Path], capsys: pytest.CaptureFixture[str], text: str
) -> None:
    folder = project(f"{DEFINITIONS}\n{text}\n")
    said = refusal(capsys, "backfill", "training", "--project", str(folder))
    line = DEFINITIONS.count("\n") + 2
    assert f"features.py, line {line}: the file exits, with " in said


def test_secrets_are_not_shown(project: Callable[..., Path]) -> None:
    text = """
        definitions = ["features.py"]
        [storage_options]
        AWS_SECRET_ACCESS_KEY = "hush"
        [spark]
        "spark.hadoop.fs.s3a.secret.key" = "hush"
    """
    found = Workspace.load(project(settings=text))
    assert "hush" not in repr(found)
    assert "hush" not in repr(found.project()._store)
    for value in ("['hush']", "{ key = 'hush' }"):
        with pytest.raises(OptionError, match="AWS_SECRET_ACCESS_KEY is a ") as error:
            Workspace.load(project(settings=text.replace('"hush"', value, 1)))
        assert "hush" not in str(error.value)
    for options in ("hush", ["hush"], {"key": b"hush"}, {"key": None}):
        with pytest.raises(OptionError, match="storage_options") as error:
            Project("state", storage_options=options)  # type: ignore[arg-type]
        assert "hush" not in str(error.value)


def test_definition_files_import_each_other(project: Callable[..., Path]) -> None:
    more = "from features import activity\nimport windrow as wr\n"
    more += "joins = [wr.Join(n, wr.Queries('data/c', time='ts'), [activity]) for n in ('a', 'b')]"
    for order in ("['features.py', 'more.py']", "['more.py', 'features.py']"):
        found = Workspace.load(project(settings=f"definitions = {order}", more=more))
        assert set(found.joins) == {"training", "a", "b"}
        assert list(found.groups) == ["activity"]


def test_a_file_named_like_a_library_does_not_replace_it(project: Callable[..., Path]) -> None:
    import json

    folder = project(settings="definitions = ['json.py']", json=DEFINITIONS)
    assert list(Workspace.load(folder).joins) == ["training"]
    import json as again

    assert again is json


def test_a_changed_file_is_read_again(project: Callable[..., Path]) -> None:
    assert list(Workspace.load(project()).joins) == ["training"]
    changed = DEFINITIONS.replace('"training"', '"learning"')
    assert list(Workspace.load(project(changed)).joins) == ["learning"]


def test_two_definitions_of_one_name(project: Callable[..., Path]) -> None:
    settings = "definitions = ['features.py', 'more.py']"
    with pytest.raises(
        DefinitionError, match=r"source 'views' is defined in features\.py and in more\.py"
    ):
        Workspace.load(project(settings=settings, more=DEFINITIONS))
    twice = DEFINITIONS + DEFINITIONS[DEFINITIONS.index("training =") :].replace(
        "training =", "other ="
    )
    with pytest.raises(DefinitionError, match=r"Join 'training' is defined twice in features\.py"):
        Workspace.load(project(twice))


def test_unknown_join(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("plan", "explain", "backfill"):
        said = refusal(capsys, command, "trainin", "--project", str(shop))
        assert "no join 'trainin'" in said
        assert "did you mean 'training'? There are: training" in said


def test_unknown_join_like_no_other(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "; there are: training" in refusal(capsys, "plan", "x", "--project", str(shop))


def test_no_join_at_all(project: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "plan", "--project", str(project("x = 1")))
    assert "no join is defined in features.py" in said


def test_days_that_are_none(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = ["training", "--project", str(shop)]
    assert "--start is 'May'" in refusal(capsys, "plan", *there, "--start", "May")
    days = ["--start", "2024-05-20", "--end", "2024-05-19"]
    assert "is after" in refusal(capsys, "backfill", *there, *days)


# with Spark


def test_plan(
    shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over plain Parquet files, without starting Spark; paths are shown as they are written."""

    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(workspace, "local_session", started)
    monkeypatch.chdir(shop / "data")
    capsys.readouterr()
    assert main(["plan"]) == 0
    shown = capsys.readouterr().out
    assert "queries from data/checkouts (1 file" in shown
    assert shown.endswith("as a Delta table, state/results/training\n")
    assert str(shop) not in shown
    assert Path.cwd() == shop / "data"
    for word in ("backfill training: all queries", "20,000 rows", "arrange", "derive", "store"):
        assert word in shown
    assert main(["--project", str(shop), "plan", "training", "--end", "2024-05-09"]) == 0
    assert "from the first to 2024-05-09" in capsys.readouterr().out
    assert not (shop / "state" / "results").exists()


def test_explain(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["explain", "training", "--project", str(shop)]) == 0
    lines = capsys.readouterr().out.splitlines()
    features = {line.split()[0]: " ".join(line.split()[1:]) for line in lines if line.split()}
    assert features["activity_view_id_count_7d"] == "bigint sawtooth 7d, hop 1h views by user_id"
    assert features["interest_view_id_count_1d"] == "bigint sliding 1d views by listing_id"
    assert features["interest_price_max"] == "decimal(10,2) lifetime views by listing_id"
    assert "map<string,bigint>" in features["activity_view_id_count_7d_by_category"]
    assert features["reputation_stars_count"] == "bigint lifetime ratings by listing_id"
    assert features["price_against_usual"] == "price / activity_price_avg_7d"


def test_explain_tells_the_types_of_the_result(spark: Any, shop: Path) -> None:
    found = Workspace.load(shop)
    project = found.project()
    plan = project.plan(found.join("training"))
    stored = dict(project.backfill(found.join("training")).dtypes)
    for name, type_, _, _ in explain.feature_rows(plan):
        assert stored[name] == type_


def test_backfill(
    spark: Any, shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    capsys.readouterr()
    week = ["--start", "2024-05-20", "--end", "2024-05-26"]
    command = ["backfill", "training", "--project", str(shop), "--rows", "2"]
    assert main([*command, *week]) == 0
    shown = capsys.readouterr().out
    stored = DeltaTable(shop / "state" / "results" / "training").to_pyarrow_table()
    days = {time.date().isoformat() for time in stored.column("ts").to_pylist()}
    assert (min(days), max(days)) == ("2024-05-20", "2024-05-26")
    figures = {
        line.rsplit(maxsplit=1)[0].strip(): line.split()[-1]
        for line in shown.splitlines()
        if line.strip()
    }
    assert figures["queries answered"] == str(stored.num_rows)
    assert figures["of those with a null time"] == "0"
    assert {"rows read", "events quarantined", "seconds"} <= set(figures)
    assert "row 2" in shown
    assert "row 3" not in shown
    assert "activity_view_id_count_7d_by_category" in shown
    assert shown.endswith(f"The result is a Delta table: {shop}/state/results/training\n")


def test_backfill_shows_progress_if_asked(
    spark: Any, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["backfill", "training", "--project", str(shop), "--rows", "0"]
    assert main([*command, "--no-progress"]) == 0
    assert "compute features" not in capsys.readouterr().err
    assert main([*command, "--progress"]) == 0
    said = capsys.readouterr()
    assert "compute features" in said.err
    assert "row 1" not in said.out


def test_a_table_that_is_not_there(
    project: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project()
    said = refusal(capsys, "plan", "--project", str(folder))
    assert str(folder / "data" / "checkouts") in said


def test_interrupted(
    spark: Any, shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def backfill(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Project, "backfill", backfill)
    assert main(["backfill", "training", "--project", str(shop)]) == 130
    assert "Nothing half-written remains" in capsys.readouterr().err


def test_only_a_spark_of_its_own_is_stopped(
    spark: Any, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import SparkContext

    stopped = []

    class Started:
        def stop(self) -> None:
            stopped.append(self)

    assert main(["plan", "--project", str(shop)]) == 0
    assert spark.range(3).count() == 3
    with monkeypatch.context() as patch:

        def refused(*_: Any, **__: Any) -> None:
            patch.setattr(SparkContext, "_active_spark_context", Started())
            raise OptionError("no")

        patch.setattr("windrow.commands.plan.plan", refused)
        assert main(["plan", "--project", str(shop)]) == 2
    assert len(stopped) == 1
    assert spark.range(3).count() == 3


def test_spark_that_does_not_start(
    shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("JAVA_GATEWAY_EXITED\nat line 1")

    monkeypatch.setattr(workspace, "local_session", broken)
    said = refusal(capsys, "backfill", "training", "--project", str(shop))
    assert "Spark did not start: JAVA_GATEWAY_EXITED. It needs Java 17" in said


def test_values_are_never_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"[bold]": ["[red]x[/red]"], "f": [0.1 + 0.2], "n": pa.nulls(1, pa.int64())})
    render.console().print(render.rows_table(rows))
    shown = capsys.readouterr().out
    assert "[bold]" in shown
    assert "[red]x[/red]" in shown
    assert "NULL" in shown


def test_a_reader_that_has_seen_enough(
    shop: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: Any) -> None:
        raise BrokenPipeError

    closed: list[tuple[int, int]] = []
    monkeypatch.setattr(cli, "_run", full)
    monkeypatch.setattr(os, "dup2", lambda *fds: closed.append(fds))
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr("sys.stdout", out)
        assert main(["plan", "--project", str(shop)]) == 0
    assert closed
