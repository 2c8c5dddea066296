"""`windrow sql`: statements from everywhere, results as tables, errors as messages."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import windrow as wr
from windrow.cli import main
from windrow.commands.sql import Shell, fetched, result_table


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def run(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs the command on a root of its own; the exit code and what was printed."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["sql", "--root", str(tmp_path / "state"), *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_statements_of_the_command_line(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run(
        "-c",
        "CREATE TABLE t (a INT, b STRING); INSERT INTO t VALUES (1, 'x;y'), (20, NULL)",
        "-c",
        "SELECT * FROM t ORDER BY a -- ; not here\n; SHOW COLUMNS IN t",
    )
    assert (code, err) == (0, "")
    assert lines(out) == [
        "a   b",
        "─────────",
        "1   x;y",
        "20   NULL",
        "2 rows",
        "col_name",
        "────────",
        "a",
        "b",
        "2 rows",
    ]
    code, out, _ = run("-c", "SELECT 1 AS one")
    assert lines(out)[-1] == "1 row"


def test_the_first_error_ends_it(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run("-c", "SELECT 1 AS x;\n SELEC 2; SELECT 3 AS y")
    assert code == 1
    assert "y" not in out
    assert err.startswith("windrow: line 2, column 2: [PARSE_SYNTAX_ERROR]")
    assert "Traceback" not in err
    code, _, err = run("-c", "SELECT 1 AS x; SELECT 1 / (id - 1) FROM range(3)")
    assert code == 1
    assert err.startswith("windrow: line 1: [DIVIDE_BY_ZERO]")
    code, _, err = run("-c", "DROP TABLE nosuch")
    assert (code, err) == (1, "windrow: there is no table 'nosuch'; there are none yet\n")


def test_a_file_and_a_pipe(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "setup.sql"
    file.write_text("CREATE TABLE t AS\n  SELECT 1 AS a;\nSELECT *\n  FROM t WHERE z = 1;\n")
    code, _, err = run("-f", str(file))
    assert code == 1
    assert err.startswith(f"windrow: {file}: line 4, column 16: [UNRESOLVED_COLUMN")
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT a + 1 AS b FROM t"))
    code, out, _ = run()
    assert code == 0
    assert "2" in out
    monkeypatch.setattr("sys.stdin", io.StringIO("SELEC"))
    code, _, err = run("-f", "-")
    assert (code, err[:24]) == (1, "windrow: standard input:")
    code, _, err = run("-f", str(tmp_path / "nosuch.sql"))
    assert code == 2
    assert "nosuch.sql cannot be read" in err


def test_a_limit_of_rows(run: Callable[..., tuple[int, str, str]]) -> None:
    _, out, _ = run("--rows", "2", "-c", "SELECT id FROM range(3)")
    assert lines(out)[-1] == "The first 2 rows; --rows N shows more, LIMIT fewer."
    _, out, _ = run("--rows", "3", "-c", "SELECT id FROM range(3)")
    assert lines(out)[-1] == "3 rows"


def test_plans_and_texts_are_printed_as_they_are(run: Callable[..., tuple[int, str, str]]) -> None:
    _, out, _ = run("-c", "EXPLAIN SELECT 1")
    assert out.startswith("== Physical Plan ==\n")
    _, out, _ = run("-c", "CREATE TABLE t (a INT, b STRING); SHOW CREATE TABLE t")
    assert out == "CREATE TABLE t (\n  a INT,\n  b STRING\n)\n"


def test_a_project_folder(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its root is used; its definitions are not run."""
    (tmp_path / "windrow.toml").write_text('root = "here"\ndefinitions = ["features.py"]\n')
    (tmp_path / "features.py").write_text("1 / 0")
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    Path("make.sql").write_text("CREATE TABLE t AS SELECT 1 AS a")
    assert main(["sql", "-f", "make.sql"]) == 0
    assert (tmp_path / "here").is_dir()
    assert main(["sql", "--project", str(tmp_path), "-c", "SELECT a FROM t"]) == 0
    assert "1 row" in capsys.readouterr().out
    monkeypatch.chdir("/")
    assert main(["sql", "-c", "SELECT 1"]) == 2


# The prompt


def typed(*entered: Any) -> Callable[[str], str]:
    """Answers prompts, one after the other; at the end, the end of the input."""
    left: Iterator[Any] = iter(entered)
    prompts: list[str] = []

    def read(prompt: str) -> str:
        prompts.append(prompt)
        found = next(left, EOFError)
        if isinstance(found, type):
            raise found
        return str(found)

    read.prompts = prompts  # type: ignore[attr-defined]
    return read


@pytest.fixture
def shell(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("WINDROW_HISTORY", str(tmp_path / "typed"))
    return Shell(wr.Project(tmp_path / "state", spark=spark))


def test_statements_of_several_lines(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    read = typed(
        "CREATE TABLE t AS", "  SELECT 5 AS a;", "SELECT a FROM t; SELECT", "a + 1 FROM t;"
    )
    assert shell.prompt(read) == 0
    said = capsys.readouterr()
    assert lines(said.out)[:4] == ["a", "─", "5", "1 row"]
    assert "6" in said.out
    assert read.prompts == ["windrow> ", "    ...> ", "windrow> ", "    ...> ", "windrow> "]  # type: ignore[attr-defined]
    assert said.err.count(" s\n") == 3  # how long each took


def test_errors_do_not_end_it(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    entered = ("SELEC 1;", "", "SELECT nosuch;", "SELECT 1", KeyboardInterrupt, "SELECT 2 AS b;")
    assert shell.prompt(typed(*entered, "exit", "SELECT 3;")) == 0
    said = capsys.readouterr()
    assert said.err.count("windrow: ") == 2
    assert lines(said.out) == ["b", "─", "2", "1 row"]


@pytest.mark.parametrize("word", ["exit", "quit;", "\\q", "EXIT"])
def test_leaving(shell: Shell, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.prompt(typed("", word, "SELECT 1;")) == 0
    assert lines(capsys.readouterr().out) == []


def test_a_statement_can_be_interrupted(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shell, "run", interrupted)
    assert shell.prompt(typed("SELECT 1;")) == 0
    assert "interrupted" in capsys.readouterr().err


# Tables


def test_values_that_arrow_has_no_type_for(spark: Any) -> None:
    frame = spark.sql(
        "SELECT INTERVAL '1-2' YEAR TO MONTH AS i, parse_json('[1]') AS v, 1 AS n, 2 AS n"
    )
    found = fetched(frame, 5)
    assert found.to_pylist() == [
        {"c0": "INTERVAL '1-2' YEAR TO MONTH", "c1": "[1]", "c2": 1, "c3": 2}
    ]


def test_numbers_are_on_the_right() -> None:
    table = result_table(pa.table({"text": ["[bold]x"], "number": [1], "float": [1 / 3]}))
    assert [column.justify for column in table.columns] == ["left", "right", "right"]
    assert [str(cell) for cell in table.columns[0].cells] == ["[bold]x"]
