"""Feast's own client, in an environment of its own, reads features from here unchanged."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from serving_worker import Serving, Start

from windrow.online.server.tokens import Tokens

ROOT = Path(__file__).parents[3]
FEAST = ROOT / ".venv-feast" / "bin" / "python"
CLIENT = Path(__file__).parent / "feast_client.py"
TOKEN = "correct-horse-battery"


def ask(serving: Serving, folder: Path, *token: str) -> subprocess.CompletedProcess[str]:
    command = [str(FEAST), str(CLIENT), str(folder), f"http://127.0.0.1:{serving.port}", *token]
    environment = {**os.environ, "FEAST_USAGE": "False", "HOME": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


@pytest.fixture
def feast() -> None:
    if not FEAST.exists():
        pytest.skip("`make test` sets up Feast, in .venv-feast")


@pytest.mark.usefixtures("feast")
def test_feasts_own_client(start: Start, tmp_path: Path) -> None:
    ended = ask(start(), tmp_path)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert found["one view"] == {
        "user_id": [3, -1, 7],
        "price_avg_1d": [6.0, None, 10.0],
        "price_avg_2d": [6.0, None, 10.0],
    }
    assert found["two views"] == {
        "user_id": [3],
        "listing": ["ab"],
        "price": [2.5],
        "activity__price_avg_1d": [6.0],
        "training__views": [3],
    }
    assert found["a service"] == {
        "user_id": [3],
        "listing": ["ab"],
        "price": [2.5],
        "views": [3],
        "stars": [1.0],
        "against_usual": [2.5],
    }
    assert found["types"]["whole"] == [2**63 - 1, 2**53 + 1]
    assert found["types"]["text"] == ["null", "ünï \U0001f33e"]
    assert found["unknown"]


@pytest.mark.usefixtures("feast")
def test_feasts_own_client_with_a_token(start: Start, tmp_path: Path) -> None:
    serving = start(tokens=Tokens([TOKEN]))
    ended = ask(serving, tmp_path, TOKEN)
    assert ended.returncode == 0, ended.stderr
    refused = ask(serving, tmp_path, "not-the-right-one")
    assert refused.returncode != 0
    assert "401" in refused.stderr
