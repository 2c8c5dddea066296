"""`windrow serve`: from the command line to the first answer."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
from serving_fake import Fake

from windrow import cli
from windrow.commands import serve
from windrow.online.server import supervisor
from windrow.online.server.settings import Settings


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "windrow.toml").write_text("definitions = ['features.py']\n")
    (tmp_path / "features.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WINDROW_TOKENS", raising=False)
    return tmp_path


def test_options_arrive(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []

    def run(opening: object, settings: Settings, started: object) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr(supervisor, "serve", run)
    (project / "tokens").write_text("correct-horse-battery\n")
    options = ["--host", "127.0.0.2", "--port", "9", "--workers", "3", "--token-file", "tokens"]
    options += ["--max-body", "1000", "--max-keys", "7", "--timeout", "0.5", "--access-log"]
    assert cli.main(["serve", *options]) == 0
    (settings,) = seen
    assert (settings.host, settings.port, settings.workers) == ("127.0.0.2", 9, 3)
    assert settings.token_file == str(project / "tokens")
    assert settings.log_requests
    limits = settings.limits
    assert (limits.body, limits.keys, limits.timeout) == (1000, 7, 0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--token-file", "none"], "cannot be read"),
        (["--workers", "0"], "workers is 0"),
        (["--port", "70000"], "port is 70000"),
        (["--max-body", "1"], "limit of body"),
    ],
)
def test_wrong_options_are_refused(
    project: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", *options]) == cli.REFUSED
    assert message in capsys.readouterr().err


def test_an_open_address_is_warned_of(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervisor, "serve", lambda *arguments: 0)
    assert cli.main(["serve", "--host", "0.0.0.0"]) == 0
    assert "no token is asked for" in capsys.readouterr().err
    monkeypatch.setenv("WINDROW_TOKENS", "correct-horse-battery")
    assert cli.main(["serve", "--host", "0.0.0.0"]) == 0
    assert capsys.readouterr().err == ""


def test_without_the_extra_it_says_what_to_install(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("windrow.online.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    assert cli.main(["serve"]) == cli.REFUSED
    assert "pip install 'windrow[server]'" in capsys.readouterr().err


def test_it_serves(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a thread of this process, until its worker is told to stop."""
    import urllib.request

    from windrow.online.server.worker import Worker

    workers: list[Worker] = []
    made = Worker.__init__

    def remember(self: Worker, *arguments: object, **options: object) -> None:
        made(self, *arguments, **options)  # type: ignore[arg-type]
        workers.append(self)

    monkeypatch.setattr(Worker, "__init__", remember)
    monkeypatch.setattr(serve, "open_served", lambda *arguments: Fake())
    codes: list[int] = []
    begun = threading.Event()
    printed: list[str] = []

    def show(text: str, **options: object) -> None:
        if text.startswith("Serving at"):  # threads of other tests may print, too
            printed.append(text)
            begun.set()

    monkeypatch.setattr("builtins.print", show)
    thread = threading.Thread(target=lambda: codes.append(cli.main(["serve", "--port", "0"])))
    thread.start()
    assert begun.wait(60)
    address = printed[0].split()[2]
    with urllib.request.urlopen(f"{address}/v1/features") as answer:
        assert "activity" in json.loads(answer.read())["names"]
    workers[0].should_exit = True
    thread.join(60)
    assert codes == [0]
