"""The rooms: imports point one way only, and the map shows them as they are."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_map_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("draw_rooms", ROOT / "docs" / "draw_rooms.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    for path, content in module.drawn().items():
        assert path.read_text() == content, f"{path.name} is out of date: run make rooms"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    run = "from importlinter.cli import lint_imports_command as run; run()"
    options = ["--no-logo", "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    return subprocess.run(
        [sys.executable, "-c", run, *options],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the code."""
    shutil.copytree(
        ROOT / "src" / "windrow", tmp_path / "windrow", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path


TYPE_ONLY = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from windrow.project import Project
"""

BAD = {
    "a room above": ("rows/types.py", "import windrow.shard.part\n"),
    "a room above, in a function": ("time.py", "def f():\n    import windrow.updates\n"),
    "a type of a room above": ("shard/part.py", TYPE_ONLY),
    "a room beside": ("testing/rows.py", "import windrow.project\n"),
    "the package itself": ("sources/times.py", "import windrow\n"),
    "a room above, in features": ("features/compute/types.py", "import windrow.features.plan\n"),
    "a room without a place": ("attic.py", "import windrow.errors\n"),
    "a cycle within a room": ("rows/hashing.py", "import windrow.rows.ordering\n"),
}


def test_imports_point_one_way(source: Path) -> None:
    done = lint(source)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("case", BAD)
def test_other_imports_are_found(case: str, source: Path) -> None:
    file, code = BAD[case]
    with (source / "windrow" / file).open("a") as out:
        out.write(code)
    done = lint(source)
    assert done.returncode == 1, done.stdout
    assert "BROKEN" in done.stdout or "not listed" in done.stdout
