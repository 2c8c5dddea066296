"""The options of every command, as `windrow --help` tells them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import windrow

Parser = argparse.ArgumentParser
if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[Parser]


def parser() -> Parser:
    """All commands, each with its options."""
    # --project may stand before the command or after it; unless given it leaves no trace, so that
    # the one place does not overwrite the other.
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument(
        "--project",
        metavar="FOLDER",
        default=argparse.SUPPRESS,
        help="the project (default: the nearest folder upward with a windrow.toml)",
    )
    where.add_argument(
        "--verbose",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show what Spark says",
    )
    days = argparse.ArgumentParser(add_help=False)
    days.add_argument("--start", metavar="DAY", help="first day of queries, such as 2024-05-10")
    days.add_argument("--end", metavar="DAY", help="last day of queries, included")

    made = argparse.ArgumentParser(
        prog="windrow", description="Aggregates that stay true as data changes.", parents=[where]
    )
    made.add_argument("--version", action="version", version=f"windrow {windrow.__version__}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")

    _add_project(commands, where)
    _add_backfills(commands, where, days)
    _add_views(commands, where)
    _add_streams(commands, where)
    _add_records(commands, where)
    _add_servers(commands, where)
    _add_consistency(commands, where, days)
    return made


def _add_project(commands: Commands, where: Parser) -> None:
    """A project folder, and what is stored in it."""
    one = commands.add_parser("init", help="make a project folder with an example")
    one.add_argument("folder", nargs="?", default=".", metavar="FOLDER")

    one = commands.add_parser(
        "doctor", parents=[where], help="check what is stored: log, parts, checksums, leftovers"
    )
    one.add_argument(
        "root", nargs="?", metavar="ROOT", help="a state root or a shard (default: the project's)"
    )
    one.add_argument(
        "--repair", action="store_true", help="do what can be done without losing anything"
    )


def _add_backfills(commands: Commands, where: Parser, days: Parser) -> None:
    """Features, point in time."""
    one = commands.add_parser(
        "plan", parents=[where, days], help="what a backfill would do, and why"
    )
    one.add_argument("name", nargs="?", metavar="NAME", help="a join (default: all)")

    one = commands.add_parser(
        "explain", parents=[where, days], help="the plan of a join, and its features"
    )
    one.add_argument("name", metavar="NAME", help="a join")

    one = commands.add_parser(
        "backfill", parents=[where, days], help="compute a join's features and store them"
    )
    one.add_argument("name", metavar="NAME", help="a join")
    _add_progress(one)
    _add_background(one)
    one.add_argument(
        "--rows", type=_count, default=5, metavar="N", help="rows to show (default: 5)"
    )


def _add_views(commands: Commands, where: Parser) -> None:
    """SQL, ticks and what views keep."""
    one = commands.add_parser(
        "sql", parents=[where], help="run statements over the project's tables and views"
    )
    one.add_argument(
        "-c",
        dest="commands",
        action="append",
        metavar="TEXT",
        help="statements to run, separated by semicolons (default: what is typed)",
    )
    one.add_argument("-f", dest="file", metavar="FILE", help="a file of statements; - for a pipe")
    one.add_argument("--root", metavar="ROOT", help="a state root (default: the project's)")
    one.add_argument(
        "--rows", type=_count, default=100, metavar="N", help="rows to show (default: 100)"
    )

    ticks = {
        "tick": "read what is new in sources, and bring all views up to date",
        "run": "tick again and again, as data arrive, until Ctrl-C",
    }
    for name, help in ticks.items():
        one = commands.add_parser(name, parents=[where], help=help)
        one.add_argument("--root", metavar="ROOT", help="a state root (default: the project's)")
        if name == "run":
            one.add_argument(
                "--every",
                type=_seconds,
                default=1.0,
                metavar="SECONDS",
                help="between two looks at the sources (default: 1)",
            )
        _add_background(one)

    one = commands.add_parser(
        "costs", parents=[where], help="what views keep: records, bytes, sharing, estimates"
    )
    one.add_argument("view", nargs="?", metavar="VIEW", help="a view (default: all)")
    one.add_argument("--root", metavar="ROOT", help="a state root (default: the project's)")
    one.add_argument("--exact", action="store_true", help="count records and keys; reads all")
    one.add_argument("--json", action="store_true", help="one line of JSON for each arrangement")


def _add_streams(commands: Commands, where: Parser) -> None:
    """What arrives."""
    one = commands.add_parser(
        "stream", parents=[where], help="take in what arrives in the streams of sources"
    )
    one.add_argument("sources", nargs="*", metavar="SOURCE", help="sources (default: all)")
    one.add_argument("--once", action="store_true", help="take in what is there now, and end")
    one.add_argument(
        "--trigger",
        type=interval,
        default=0.5,
        metavar="TIME",
        help="between the starts of two micro-batches, such as 500ms or 2s (default: 500ms)",
    )
    one.add_argument("--metrics", metavar="[HOST:]PORT", help="serve figures there, for Prometheus")
    _add_background(one)
    commands.add_parser("jars", help="fetch Spark's connector to Kafka, with Maven")


def _add_records(commands: Commands, where: Parser) -> None:
    """Features online."""
    one = commands.add_parser(
        "upload", parents=[where], help="put features online: write the records of all keys"
    )
    one.add_argument(
        "names", nargs="*", metavar="NAME", help="joins or groups (default: all joins)"
    )
    one.add_argument(
        "--as-of", metavar="TIME", help="features can be fetched from then on (default: now)"
    )
    _add_progress(one)
    _add_background(one)

    one = commands.add_parser(
        "fetch", parents=[where], help="the features of a key, as they are served"
    )
    one.add_argument("name", metavar="NAME", help="a join or group that is online")
    one.add_argument("keys", nargs="+", metavar="KEY=VALUE", help="such as user_id=7")
    one.add_argument("--at", metavar="TIME", help="as of then (default: now)")


def _add_servers(commands: Commands, where: Parser) -> None:
    """Features over HTTP, and the console."""
    one = commands.add_parser(
        "serve", parents=[where], help="answer requests for features over HTTP, until Ctrl-C"
    )
    _add_address(one, 8080)
    one.add_argument(
        "--workers", type=_count, default=1, metavar="N", help="processes (default: 1)"
    )
    one.add_argument(
        "--token-file",
        metavar="FILE",
        help="bearer tokens, one a line; also $WINDROW_TOKENS (default: everybody may ask)",
    )
    one.add_argument(
        "--max-body", type=_count, default=2**20, metavar="BYTES", help="default: 1048576"
    )
    one.add_argument(
        "--max-keys", type=_count, default=10_000, metavar="N", help="of a request (default: 10000)"
    )
    one.add_argument(
        "--timeout",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="for a request to arrive, to be fetched, and to be read (default: 10)",
    )
    one.add_argument(
        "--access-log", action="store_true", help="a line of JSON for each request, on stderr"
    )
    one.add_argument(
        "--log-rate",
        type=_share,
        default=0.0,
        metavar="SHARE",
        help="of requests whose answers are logged, for `windrow consistency` (default: 0, none)",
    )
    one.add_argument(
        "--log-keep",
        default="30d",
        metavar="LENGTH",
        help="for how long what was logged is kept, or `forever` (default: 30d)",
    )
    one.add_argument(
        "--console",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the console beside it, at /console/ (default: if it is installed)",
    )

    one = commands.add_parser(
        "console", parents=[where], help="the project in a web browser, until Ctrl-C"
    )
    _add_address(one, 8090)
    one.add_argument(
        "--token-file",
        metavar="FILE",
        help="tokens to look, one a line; also $WINDROW_TOKENS (default: everybody may look)",
    )
    one.add_argument(
        "--action-token-file",
        metavar="FILE",
        help="tokens to act, one a line (default: nobody may)",
    )
    one.add_argument(
        "--access-log", action="store_true", help="a line of JSON for each request, on stderr"
    )


def _add_consistency(commands: Commands, where: Parser, days: Parser) -> None:
    """Whether what was served was right."""
    one = commands.add_parser(
        "consistency",
        parents=[where, days],
        help="whether what was served is what a backfill computes: exit code 1 if not",
    )
    one.add_argument("name", metavar="NAME", help="a join or group")
    one.add_argument(
        "--threshold",
        type=_share,
        default=0.999,
        metavar="SHARE",
        help="of the values of each feature that have to agree (default: 0.999)",
    )
    one.add_argument(
        "--examples", type=_count, default=50, metavar="N", help="to explain (default: 50)"
    )
    one.add_argument(
        "--log", metavar="TABLE", help="the log of another system: a path, or a table of Spark"
    )
    one.add_argument("--time", metavar="COLUMN", help="of that log: the time of a request")
    for option, what in (("--keys", "keys and inputs"), ("--values", "features")):
        one.add_argument(
            option,
            nargs="+",
            default=[],
            metavar="NAME=COLUMN",
            help=f"columns of that log for {what}, where they have other names",
        )
    _add_progress(one)
    _add_background(one)


def _add_progress(one: Parser) -> None:
    one.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show bars (default: on a terminal)",
    )


def _add_background(one: Parser) -> None:
    one.add_argument(
        "--background",
        action="store_true",
        help="at the lowest priority: other processes of this machine, such as servers, go first",
    )


def _add_address(one: Parser, port: int) -> None:
    """Where a server listens."""
    one.add_argument(
        "--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1, this machine)"
    )
    one.add_argument(
        "--port", type=_count, default=port, help=f"0 for any that is free (default: {port})"
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; write 1 or 0.5")
    return value


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; write 0.1, or 1 for all")
    return value


def interval(text: str) -> float:
    number, scale = (text[:-2], 1000) if text.endswith("ms") else (text.removesuffix("s"), 1)
    try:
        value = float(number) / scale
    except ValueError:
        value = -1.0
    if not 0 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 500ms or 2s")
    return value


def _count(text: str) -> int:
    value = int(text) if text.isdecimal() else -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number; write 0 or more")
    return value
