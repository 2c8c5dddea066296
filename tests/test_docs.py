"""The README and the examples work as written."""

from __future__ import annotations

import importlib
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import windrow as wr
from windrow.cli import main

ROOT = Path(__file__).parent.parent


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_readme_shard(spark: Any, tmp_path: Path) -> None:
    _, code = blocks("README.md", "python")
    scope: dict[str, Any] = {"spark": spark}
    exec(code.replace("/tmp/scores", str(tmp_path / "scores")), scope)
    shard = scope["shard"]
    now = {row["user"]: row["score"] for row in shard.snapshot().to_table().to_pylist()}
    assert now == {"ann": 5, "bob": 2}
    assert shard.snapshot().dataframe(spark).count() == 2


def test_readme_features(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    views = spark.range(200).selectExpr(
        "id % 5 AS user_id",
        "id AS view_id",
        "id % 7 AS listing_id",
        "id / 10 AS price",
        "concat('c', id % 2) AS category",
        "timestamp_millis(1600000000000 + id * 3600000) AS ts",
    )
    views.write.parquet(f"{tmp_path}/site/views.parquet")
    checkouts = spark.range(10).selectExpr(
        "id % 6 AS buyer_id", "timestamp_millis(1600000000000 + id * 72000000) AS ts"
    )
    checkouts.write.parquet(f"{tmp_path}/site/checkouts.parquet")
    code, _ = blocks("README.md", "python")
    scope: dict[str, Any] = {}
    exec(code.replace('table="site/', f'table="{tmp_path}/site/'), scope)
    rows = scope["df"].collect()
    assert len(rows) == 10
    by_buyer = {(row.buyer_id, row.ts): row for row in rows}
    first = min(by_buyer, key=lambda key: key[1])
    assert by_buyer[first].activity_view_id_count_7d == 0
    stored = DeltaTable(f"{tmp_path}/state/results/training").to_pyarrow_table()
    assert stored.num_rows == 10
    assert stored.schema.names == scope["df"].columns
    assert not any((tmp_path / "state" / "tmp").iterdir())


def commands(page: str, number: int) -> list[str]:
    """The commands of a page's console block, without their comments."""
    lines = blocks(page, "console")[number].splitlines()
    return [line[2:].partition("#")[0].strip() for line in lines if line.startswith("$ ")]


def test_the_first_commands_of_the_readme_are_make_targets() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert commands("README.md", 0) == ["make demo", "make test"]
    assert {"demo", "test", "bench-shard", "bench-backfill"} <= set(targets)
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def run_commands(lines: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for line in lines:
        program, *arguments = shlex.split(line)
        if program == "cd":
            monkeypatch.chdir(arguments[0])
        elif program == "windrow":
            assert main(arguments) == 0, line
        else:
            assert line == ". .venv/bin/activate"


def test_readme_commands(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = commands("README.md", 1)
    assert sum(line.startswith("windrow ") for line in lines) == 4
    run_commands(lines, tmp_path, monkeypatch)
    shown = capsys.readouterr().out
    assert "backfill training: all queries" in shown
    assert shown.count("The result is a Delta table") == 2
    # The last command answers a week.
    stored = DeltaTable(f"{tmp_path}/shop/state/results/training").to_pyarrow_table()
    assert 0 < stored.num_rows < 500


def test_commands_page_and_new_project(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/commands.md and the README of a new project tell to type can be typed."""
    run_commands(commands("docs/commands.md", 0), tmp_path, monkeypatch)
    page = "src/windrow/templates/shop/README.md"
    run_commands(commands(page, 0), tmp_path / "shop", monkeypatch)


def test_the_package_has_the_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["windrow"].partition(":")
    assert getattr(importlib.import_module(module), name) is main
    assert project["version"] == wr.__version__


def test_links_in_the_docs_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_shop(tmp_path: Path, example: Callable[..., Any]) -> None:
    """What `make demo` runs."""
    done = example("shop.py", tmp_path / "shop")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal: all 6,500 features of all 500 checkouts" in done.stdout
    # Someone has worked on it: it is not replaced.
    with (tmp_path / "shop" / "features.py").open("a") as file:
        file.write("# mine\n")
    done = example("shop.py", tmp_path / "shop")
    assert done.returncode == 1
    assert "has been changed" in done.stdout
    assert (tmp_path / "shop" / "features.py").read_text().endswith("# mine\n")


def test_shard_tour(example: Callable[..., Any]) -> None:
    done = example("shard_tour.py")
    assert done.returncode == 0, done.stderr
    assert "read with consolidation full        ->   666,666 updates" in done.stdout
