"""`windrow console`, and the console within `windrow serve`: from the command line to a page."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from windrow import cli
from windrow.commands.opening import open_console
from windrow.online.server import supervisor
from windrow.online.server.app import App
from windrow.online.server.logs import Log
from windrow.online.server.settings import Settings
from windrow.online.server.tokens import Tokens

TOKEN = "correct-horse-battery"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "windrow.toml").write_text("definitions = ['features.py']\n")
    (tmp_path / "features.py").write_text(
        "import windrow as wr\nfrom windrow import agg\n"
        "views = wr.EventSource(name='views', table='views.parquet', time='ts')\n"
        "activity = wr.GroupBy('activity', views, ['user'], [agg.count('id').over('7d')])\n"
    )
    (tmp_path / "tokens").write_text(f"{TOKEN}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WINDROW_TOKENS", raising=False)
    return tmp_path


def settings_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Settings:
    seen: list[Settings] = []

    def run(opening: object, settings: Settings, started: object) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr(supervisor, "serve", run)
    assert cli.main([*arguments]) == 0
    return seen[0]


def test_options_arrive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--host", "127.0.0.2", "--port", "9", "--token-file", "tokens", "--access-log"]
    found = settings_of(monkeypatch, "console", *given, "--action-token-file", "tokens")
    assert (found.host, found.port, found.workers) == ("127.0.0.2", 9, 1)
    assert found.token_file == str(folder / "tokens")
    assert found.log_requests
    assert not found.features
    assert found.mounting is not None
    made = found.mounting(Tokens(), Log())
    assert made.path == "/console"
    made.refresh()
    made.close()


def test_the_server_has_it_unless_told_otherwise(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings_of(monkeypatch, "serve").mounting is not None
    assert settings_of(monkeypatch, "serve", "--no-console").mounting is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert settings_of(monkeypatch, "serve").mounting is None


@pytest.mark.parametrize("option", ["--token-file", "--action-token-file"])
def test_tokens_that_cannot_be_read_are_refused(
    folder: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["console", option, "none"]) == cli.REFUSED
    assert "cannot be read" in capsys.readouterr().err


def test_an_open_address_is_warned_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings_of(monkeypatch, "console", "--host", "0.0.0.0")
    assert "no token is asked for" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("windrow.console")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert cli.main(["console"]) == cli.REFUSED
    assert "pip install 'windrow[console]'" in capsys.readouterr().err


def asked(app: App, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b""}
    asyncio.run(app({**scope, "headers": given}, receive, send))
    return (
        sent[0]["status"],
        {k.decode(): v.decode() for k, v in sent[0]["headers"]},
        sent[1]["body"],
    )


class Nothing:
    """What is served where nothing is."""

    waits = False

    def names(self) -> list[str]:
        return []


def test_beside_features_and_alone(folder: Path) -> None:
    """It asks for the tokens of the server; alone, all but it and health is not there."""
    tokens = Tokens([TOKEN])
    console = open_console(str(folder), None, tokens, Log())
    app = App(Nothing(), tokens=tokens, mounted=console)  # type: ignore[arg-type]
    assert asked(app, "/console/")[0] == 303
    assert asked(app, "/console")[0] == 303
    bearer = {"authorization": f"Bearer {TOKEN}"}
    status, _, body = asked(app, "/console/group", **bearer)
    assert status == 404
    status, _, body = asked(app, "/console/features", **bearer)
    assert status == 200
    assert b"id_count_7d" in body
    assert asked(app, "/v1/features")[0] == 401
    assert b'route="mounted",status="200"' in app.tallies.text()
    app.closing = True
    assert asked(app, "/console/", **bearer)[1]["connection"] == "close"
    alone = App(Nothing(), mounted=console, features=False)  # type: ignore[arg-type]
    assert asked(alone, "/")[:2][0] == 303
    assert asked(alone, "/")[1]["location"] == "/console/"
    assert asked(alone, "/v1/features")[0] == 404
    assert asked(alone, "/health/ready")[0] == 200
    app.close()


def test_it_runs_without_spark(folder: Path) -> None:
    """In a process of its own, where there is no Java; until it is told to stop."""
    command = [sys.executable, "-m", "windrow.cli", "console", "--port", "0"]
    environment = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere", "HOME": str(folder)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdout=pipe, text=True, env=environment) as child:
        try:
            assert child.stdout is not None
            address = child.stdout.readline().split()[4].rstrip(";")
            with urllib.request.urlopen(address) as answer:
                assert b"Overview" in answer.read()
            root = address.removesuffix("/console/")
            with urllib.request.urlopen(f"{root}/health/live") as answer:
                assert json.loads(answer.read())["status"] == "live"
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0
        finally:
            child.kill()
    assert not (folder / "state").exists()
