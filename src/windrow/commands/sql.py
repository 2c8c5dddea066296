"""`windrow sql`: statements from the command line, a file, a pipe or a prompt."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from windrow.commands.render import console, plain_table, shown
from windrow.errors import OptionError, WindrowError
from windrow.project import Project
from windrow.spark.schemas import quoted, spark_to_arrow_schema
from windrow.spark.sql_errors import sql_errors
from windrow.spark.tokens import Piece, pieces
from windrow.workspace import SETTINGS, Settings, Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FAILED = 1
ROWS = 100  # shown by default
HISTORY = "WINDROW_HISTORY"  # names the file of what was typed
_PROMPT, _MORE = "windrow> ", "    ...> "
_LEAVE = ("exit", "quit", "\\q")


def sql(
    project: Project,
    commands: list[str] | None = None,
    file: str | None = None,
    *,
    rows: int = ROWS,
) -> int:
    """Run statements, and print what they give; the exit code is 1 if one of them failed.

    They are those of `commands`, or else of `file`, or else what is typed or piped in.
    """
    shell = Shell(project, rows)
    if commands:
        return shell.script(";\n".join(commands), "")
    if file is not None and file != "-":
        return shell.script(_content(file), file)
    if file == "-" or not sys.stdin.isatty():
        return shell.script(sys.stdin.read(), "standard input")
    return shell.prompt()


def project_in(folder: Path) -> Project:
    """The project of a folder; its definitions of features are not needed, and not run."""
    settings = Settings.read(folder / SETTINGS)
    return Workspace(folder, settings, {}, {}, {}).project()


def _content(file: str) -> str:
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{file} cannot be read: {error}") from error


class Shell:
    """Statements of one user, one after the other."""

    def __init__(self, project: Project, rows: int = ROWS) -> None:
        self._project, self._rows = project, rows

    def script(self, text: str, where: str) -> int:
        """Run all statements of a text; the first that fails is the last."""
        for piece in pieces(text):
            try:
                self.run(_in_place(text, piece))
            except WindrowError as error:
                print(f"windrow: {_placed(error, text, piece, where)}", file=sys.stderr)
                return FAILED
        return 0

    def prompt(self, read: Callable[[str], str] = input) -> int:
        """Statements as they are typed; each ends with a semicolon."""
        with _remembering():
            text = ""
            while True:
                try:
                    line = read(_MORE if text.strip() else _PROMPT)
                except EOFError:
                    print()
                    return 0
                except KeyboardInterrupt:
                    print()
                    text = ""  # what was begun is given up
                    continue
                if not text.strip() and line.strip().rstrip(";").lower() in _LEAVE:
                    return 0
                text = self._typed(f"{text}{line}\n")

    def _typed(self, text: str) -> str:
        """Run the statements that a semicolon ends; what is left of the text."""
        for piece in pieces(text):
            if not piece.ended:
                return text[piece.start :]
            started = time.perf_counter()
            try:
                self.run(piece.text)
                print(f"{time.perf_counter() - started:.2f} s", file=sys.stderr)
            except WindrowError as error:
                print(f"windrow: {error}", file=sys.stderr)
            except KeyboardInterrupt:
                print("interrupted; nothing was committed by this statement", file=sys.stderr)
        return ""

    def run(self, text: str) -> None:
        """Run one statement and print its rows, if it gives some."""
        found = self._project.sql(text)
        if found is None:
            return
        with sql_errors():
            rows = fetched(found, self._rows + 1)
        more = rows.num_rows > self._rows
        if rows.column_names == ["plan"] or rows.column_names == ["createtab_stmt"]:
            for value in rows.column(0).to_pylist():  # text of several lines, as it is
                print(value)
            return
        console().print(result_table(rows.slice(0, self._rows)))
        if more:
            print(f"The first {self._rows:,} rows; --rows N shows more, LIMIT fewer.")
        else:
            print(f"{rows.num_rows:,} row{'s' if rows.num_rows != 1 else ''}")


def fetched(frame: DataFrame, limit: int) -> pa.Table:
    """The first rows of a frame. What Arrow has no type for comes as text."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StructType

    names = [f"c{i}" for i in range(len(frame.columns))]  # there may be two of one name
    columns = []
    for name, field in zip(names, frame.schema, strict=True):
        column = F.col(quoted(name))
        try:
            spark_to_arrow_schema(StructType().add("c", field.dataType))
        except WindrowError:
            column = column.cast("string").alias(name)
        columns.append(column)
    found = frame.toDF(*names).select(*columns).limit(limit).toArrow()
    return found.rename_columns(frame.columns) if len(set(frame.columns)) == len(names) else found


def result_table(rows: pa.Table) -> Table:
    """Rows, a line each."""
    table = plain_table(*rows.column_names)
    for column, field in zip(table.columns, rows.schema, strict=True):
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            column.justify = "right"
        if pa.types.is_decimal(field.type):
            column.justify = "right"
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        # As Text: rich would take some values for its own markup.
        table.add_row(*(Text(shown(value)) for value in row))
    return table


def _in_place(text: str, piece: Piece) -> str:
    """A statement at the line and column where it is in the whole text, for errors to name."""
    before = text[: piece.start]
    return "\n" * before.count("\n") + " " * len(before.rpartition("\n")[2]) + piece.text


def _placed(error: WindrowError, text: str, piece: Piece, where: str) -> str:
    """An error with the place of its statement, unless it says a place itself."""
    said = str(error)
    if not said.startswith("line ") and len(pieces(text)) > 1:
        said = f"line {text.count(chr(10), 0, piece.start) + 1}: {said}"
    return f"{where}: {said}" if where else said


@contextlib.contextmanager
def _remembering() -> Iterator[None]:
    """Editing of lines, with what was typed in earlier sessions."""
    try:
        import readline
    except ImportError:  # not on every platform
        yield
        return
    file = os.environ.get(HISTORY) or os.path.expanduser("~/.windrow_history")
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.set_history_length(1000)
            readline.write_history_file(file)
