"""The README and the examples work as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

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


def test_readme_commands_are_make_targets() -> None:
    commands = re.findall(r"^\$ make (\S+)", "\n".join(blocks("README.md", "console")), re.M)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert commands == ["demo", "test"]
    assert set(commands) <= set(targets)
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_links_in_the_docs_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.slow
def test_shard_tour() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "shard_tour.py")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "read with consolidation full        ->   666,666 updates" in done.stdout
