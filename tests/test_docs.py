"""What the pages say holds: links lead somewhere, samples run, commands exist, the site builds."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hatchling.build
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import windrow as wr
from windrow import agg, testing
from windrow.algebra.states import States
from windrow.cli import main
from windrow.commands.arguments import parser
from windrow.commands.render import shown
from windrow.shard import Read
from windrow.workspace import Workspace

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        ROOT / "examples" / "README.md",
        SOURCE / "windrow" / "templates" / "shop" / "README.md",
    ]
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(
        r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE
    )
    return [block for tag, block in found if tag == language]


def commands(page: str, number: int) -> list[list[str]]:
    """The commands of a page's console block, as words."""
    lines = blocks(page, "console")[number].splitlines()
    return [shlex.split(line[2:], comments=True) for line in lines if line.startswith("$ ")]


# Links


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """As seen in the repository; that of the site, headings included, is checked as it is built."""
    for target in re.findall(r"\]\((?!\w+:)([^)#]+)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"


# Samples

NAMES: dict[str, Any] = {
    "wr": wr,
    "agg": agg,
    "testing": testing,
    "shard": wr.Shard,
    "project": wr.Project,
    "read": Read,
    "states": States,
    "workspace": Workspace,
}


def attribute(node: ast.expr) -> Any:
    """What `wr.GroupBy`, `agg.sum` or `shard.append` stand for; None for anything else."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return None
    owner = NAMES.get(node.value.id)
    if owner is None:
        return None
    made = getattr(owner, "__init__", None) if inspect.isclass(owner) else None
    own = {*dir(owner), *getattr(owner, "__dataclass_fields__", {})}
    if made is not None:
        own |= set(re.findall(r"self\.(\w+)", inspect.getsource(owner)))
    assert node.attr in own, f"{node.value.id}.{node.attr} does not exist"
    return getattr(owner, node.attr, None)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_samples_compile_and_name_what_there_is(page: str) -> None:
    for code in blocks(page, "python"):
        for node in ast.walk(ast.parse(code, page)):
            if isinstance(node, ast.Attribute):
                attribute(node)
            if isinstance(node, ast.Call) and callable(found := attribute(node.func)):
                known = inspect.signature(found).parameters
                if any(p.kind is p.VAR_KEYWORD for p in known.values()):
                    continue
                for keyword in node.keywords:
                    assert keyword.arg is None or keyword.arg in known, (
                        f"{ast.unparse(node.func)} has no {keyword.arg}"
                    )


@pytest.mark.parametrize("page", ["docs/states.md", "docs/stores.md"])
def test_samples_that_stand_alone_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"np": np, "pa": pa, "wr": wr, "agg": agg}
    for code in blocks(page, "python"):  # a later one may use the names of an earlier one
        exec(compile(code, page, "exec"), scope)
    for name, value in list(scope.items()):
        if name.startswith("test_"):
            value()


MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in (SOURCE / "windrow").rglob("*.py")
    if ">>>" in path.read_text()
)


@pytest.mark.parametrize("module", MODULES)
def test_samples_in_docstrings_run(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0


# Commands


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")])
def test_commands_exist(page: str) -> None:
    for number in range(len(blocks(page, "console"))):
        for program, *arguments in commands(page, number):
            match program, arguments:
                case "windrow", _:
                    parser().parse_args(arguments)
                case "make", targets:
                    assert TARGETS.issuperset(targets)
                case "pip", ["install", what]:
                    assert re.fullmatch(r"(\.|windrow)(\[\w+\])?", what)
                    extras = re.findall(r"\[(\w+)\]", what)
                    assert PROJECT["optional-dependencies"].keys() >= set(extras)
                case ".venv/bin/python", [file, *_]:
                    assert (ROOT / file).exists()
                case "cd", [_]:
                    pass
                case _:
                    raise AssertionError(f"{page}: {program} {arguments} is not checked")


@pytest.mark.parametrize("page", PAGES)
def test_targets_of_make_exist(page: str) -> None:
    assert TARGETS.issuperset(re.findall(r"`make ([\w-]+)`", (ROOT / page).read_text()))


def test_the_readme_names_the_targets_that_ci_runs() -> None:
    pages = range(len(blocks("README.md", "console")))
    said = [words for number in pages for words in commands("README.md", number)]
    assert ["make", "test"] in said
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def run_commands(lines: list[list[str]], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for program, *arguments in lines:
        if program == "cd":
            monkeypatch.chdir(arguments[0])
        else:
            assert program == "windrow"
            assert main(arguments) == 0, arguments


def test_readme_commands(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert commands("README.md", 0) == [["make", "demo"]]  # which is test_shop
    install, *lines = commands("README.md", 1)
    assert install == ["pip", "install", "."]
    run_commands(lines, tmp_path, monkeypatch)
    assert "The result is a Delta table" in capsys.readouterr().out

    # What the README shows is in the result; which rows come first is not promised.
    table = blocks("README.md", "")[1].splitlines()[2:]
    said = {}
    for line in table[:-1]:
        name, *values = re.split(r"\s{2,}", line.strip())
        said[name] = values
    assert len(said) > 10
    stored = DeltaTable(f"{tmp_path}/shop/state/results/training").to_pyarrow_table().to_pylist()
    by_id = {str(row["checkout_id"]): row for row in stored}
    for number, checkout in enumerate(said["checkout_id"]):
        row = by_id[checkout]
        assert {name: shown(row[name]) for name in said} == {
            name: values[number] for name, values in said.items()
        }


def test_commands_page_and_new_project(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/commands.md and the README of a new project tell to type can be typed."""
    run_commands(commands("docs/commands.md", 0), tmp_path, monkeypatch)
    page = "src/windrow/templates/shop/README.md"
    run_commands(commands(page, 0), tmp_path / "shop", monkeypatch)


def test_the_package_can_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install .`: what is installed has the command, its templates and the extras."""
    monkeypatch.chdir(ROOT)
    wheel = tmp_path / hatchling.build.build_wheel(str(tmp_path))
    names = set(zipfile.ZipFile(wheel).namelist())
    written = {
        str(path.relative_to(SOURCE))
        for path in (SOURCE / "windrow").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert written <= names
    place = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(place), str(wheel)], check=True)
    done = subprocess.run(
        [sys.executable, str(place / "bin" / "windrow"), "--version"],
        env={"PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"windrow {wr.__version__}\n"
    assert PROJECT["version"] == wr.__version__


# The README's samples


def test_readme_shard(spark: Any, tmp_path: Path) -> None:
    _, _, code = blocks("README.md", "python")
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
    code, _, _ = blocks("README.md", "python")
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


def test_readme_views(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, code, _ = blocks("README.md", "python")
    scope: dict[str, Any] = {}
    exec(code, scope)
    found = scope["project"].sql("SELECT * FROM reputation ORDER BY listing").collect()
    assert [tuple(row) for row in found] == [(1, 5.0, 5), (2, 4.0, 4)]


def test_the_readme_counts_the_aggregates() -> None:
    functions = [f for _, f in inspect.getmembers(agg, inspect.isfunction)]
    public = {f.__name__ for f in functions if f.__module__ == agg.__name__}
    assert f"**{len(public)} aggregates**" in (ROOT / "README.md").read_text()


# The site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages of the site, as `make docs` builds it: every warning is an error."""
    out = tmp_path_factory.mktemp("site")
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
    done = subprocess.run([*sphinx, str(ROOT / "docs"), str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {
        str(path.relative_to(out)): path.read_text()
        for path in out.rglob("*")
        if path.suffix in (".html", ".css")
    }


def test_every_page_is_in_the_site(site: dict[str, str]) -> None:
    pages = {
        page.removeprefix("docs/").replace(".md", ".html") for page in PAGES if "docs/" in page
    }
    assert pages <= site.keys()
    assert "Aggregates that stay true" in site["index.html"]


def test_nothing_is_loaded_from_elsewhere(site: dict[str, str]) -> None:
    loads = r"""(?:src=|<link[^>]*href=|url\(|@import )["']?(?:https?:)?//[^"')]*"""
    for name, text in site.items():
        assert not re.findall(loads, text), name


def test_the_whole_api_is_in_the_site(site: dict[str, str]) -> None:
    text = "".join(page for name, page in site.items() if name.startswith("api/"))
    named = {f"windrow.{name}" for name in wr.__all__ if not inspect.ismodule(getattr(wr, name))}
    named |= {f"windrow.testing.{name}" for name in testing.__all__}
    for module in (agg, wr.errors):
        members = vars(module).items()
        named |= {
            f"{module.__name__}.{name}"
            for name, value in members
            if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
        }
    assert len(named) > 40
    assert {name for name in named if f'id="{name}"' not in text} == set()


# The examples


def untimed(text: str) -> str:
    """A text without how long something took, and how its columns are aligned."""
    return re.sub(r"\s+", " ", re.sub(r"[\d.]+ m?s\b", "N s", text))


def test_shop(tmp_path: Path, example: Callable[..., Any]) -> None:
    """What `make demo` runs."""
    done = example("shop.py", tmp_path / "shop")
    assert done.returncode == 0, done.stdout + done.stderr
    said = untimed(done.stdout)
    shown = [line for line in blocks("README.md", "")[0].splitlines() if line.strip(" .─")]
    assert len(shown) > 10
    for line in [*shown, "and loops over the raw rows agree"]:
        assert untimed(line).strip() in said, done.stdout
    (page,) = (tmp_path / "shop/state/consistency/training/reports").glob("*.html")
    assert page.name in done.stdout
    assert "consistent" in page.read_text()
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
