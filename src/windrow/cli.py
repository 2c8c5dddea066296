"""The command line: `windrow init`, `plan`, `backfill`, `sql`, `upload`, `serve` and others.

Arguments in, an exit code out. What a command does is in `windrow.commands`; here is only what all
have in common: the options, the project folder, and how errors are told.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import windrow
from windrow.errors import WindrowError

REFUSED = 2  # argparse uses the same for arguments that it cannot read
VERBOSE = "WINDROW_VERBOSE"  # the same, by the environment
INCONSISTENT = 1  # what `consistency` reports, also if there is nothing to compare
DAMAGED = 1  # what the doctor reports; and `sql`, if a statement failed
INTERRUPTED = 130  # what shells report for a process that Ctrl-C ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 if the doctor found damage or what was served is not
    consistent, 2 if it was refused or failed, 130 after Ctrl-C.
    """
    try:
        args = _parser().parse_args(argv)
        with _without_tracebacks_of_py4j():
            return _run(args)
    except WindrowError as error:
        print(f"windrow: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print(
            "windrow: interrupted. Nothing half-written remains: tables are as they were, or "
            "complete. Run the command again to resume",
            file=sys.stderr,
        )
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has seen enough; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(args: argparse.Namespace) -> int:
    # Not loaded before: it takes a second, in which Ctrl-C is to be heard.
    if args.command == "init":
        from windrow.commands.init import init, next_steps

        init(args.folder)
        print(next_steps(args.folder))
        return 0
    if getattr(args, "verbose", False):
        os.environ[VERBOSE] = "1"
    if args.command == "doctor":
        return _doctor(args)
    if args.command == "sql":
        return _sql(args)
    if args.command in ("tick", "run", "costs"):
        return _views(args)
    if args.command in ("upload", "fetch"):
        return _online(args)
    if args.command == "consistency":
        return _consistency(args)
    if args.command == "serve":
        return _serve(args)
    if args.command == "console":
        return _console(args)
    if args.command == "jars":
        from windrow.commands.stream import fetch_jars

        fetch_jars()
        return 0
    if args.command == "stream":
        return _stream(args)
    from windrow.storage import footers

    footers.start()  # while everything else is loaded
    from windrow.commands.backfill import backfill
    from windrow.commands.explain import explain
    from windrow.commands.plan import plan
    from windrow.workspace import Workspace

    folder = Workspace.find(getattr(args, "project", None))
    # Relative paths mean the same wherever in or outside the project a command is typed.
    with contextlib.chdir(folder), _stopping_spark():
        workspace = Workspace.load(folder)
        days = {"start": args.start, "end": args.end}
        match args.command:
            case "plan":
                plan(workspace, args.name, **days)
            case "explain":
                explain(workspace, args.name, **days)
            case "backfill":
                backfill(workspace, args.name, **days, progress=args.progress, rows=args.rows)
    return 0


def _doctor(args: argparse.Namespace) -> int:
    from windrow.commands.doctor import doctor
    from windrow.workspace import SETTINGS, Settings, Workspace

    if args.root is not None:
        return 0 if doctor(args.root, repair=args.repair) else DAMAGED
    folder = Workspace.find(getattr(args, "project", None))
    settings = Settings.read(folder / SETTINGS)
    with contextlib.chdir(folder):
        sound = doctor(settings.root, settings.storage_options, repair=args.repair)
    return 0 if sound else DAMAGED


def _sql(args: argparse.Namespace) -> int:
    from windrow.commands.sql import project_in, sql
    from windrow.project import Project
    from windrow.workspace import Workspace

    with _stopping_spark():
        if args.root is not None:
            return sql(Project(args.root), args.commands, args.file, rows=args.rows)
        file = None if args.file in (None, "-") else os.path.abspath(args.file)
        folder = Workspace.find(getattr(args, "project", None))
        with contextlib.chdir(folder):
            return sql(project_in(folder), args.commands, file or args.file, rows=args.rows)


def _online(args: argparse.Namespace) -> int:
    from windrow.commands.online import fetch, upload
    from windrow.workspace import Workspace

    folder = Workspace.find(getattr(args, "project", None))
    with contextlib.chdir(folder), _stopping_spark():
        workspace = Workspace.load(folder)
        if args.command == "upload":
            upload(workspace, args.names, as_of=args.as_of, progress=args.progress)
        else:
            fetch(workspace, args.name, args.keys, at=args.at)
    return 0


def _consistency(args: argparse.Namespace) -> int:
    from windrow.commands.consistency import consistency
    from windrow.workspace import Workspace

    log = args.log
    if log is not None and os.path.exists(log):
        log = os.path.abspath(log)
    folder = Workspace.find(getattr(args, "project", None))
    with contextlib.chdir(folder), _stopping_spark():
        report = consistency(
            Workspace.load(folder),
            args.name,
            start=args.start,
            end=args.end,
            threshold=args.threshold,
            examples=args.examples,
            log=log,
            time=args.time,
            keys=args.keys,
            values=args.values,
            progress=args.progress,
        )
    return 0 if report.consistent else INCONSISTENT


def _views(args: argparse.Namespace) -> int:
    from windrow.commands.costs import costs
    from windrow.commands.run import run, tick
    from windrow.commands.sql import project_in
    from windrow.project import Project
    from windrow.workspace import Workspace

    with _stopping_spark(), contextlib.ExitStack() as entered:
        if args.root is not None:
            project = Project(args.root)
        else:
            folder = Workspace.find(getattr(args, "project", None))
            entered.enter_context(contextlib.chdir(folder))
            project = project_in(folder)
        entered.enter_context(project)
        if args.command == "costs":
            costs(project, args.view, exact=args.exact, as_json=args.json)
        elif args.command == "tick":
            tick(project)
        else:
            run(project, args.every)
    return 0


def _serve(args: argparse.Namespace) -> int:
    from windrow.commands.serve import serve
    from windrow.workspace import Workspace

    token_file = None if args.token_file is None else os.path.abspath(args.token_file)
    folder = Workspace.find(getattr(args, "project", None))
    with contextlib.chdir(folder):
        return serve(
            Workspace.load(folder),
            host=args.host,
            port=args.port,
            workers=args.workers,
            token_file=token_file,
            max_body=args.max_body,
            max_keys=args.max_keys,
            timeout=args.timeout,
            access_log=args.access_log,
            log_rate=args.log_rate,
            log_keep=None if args.log_keep == "forever" else args.log_keep,
            console=args.console,
        )


def _console(args: argparse.Namespace) -> int:
    from windrow.commands.console import console
    from windrow.workspace import Workspace

    files = (args.token_file, args.action_token_file)
    tokens, actors = (None if file is None else os.path.abspath(file) for file in files)
    folder = Workspace.find(getattr(args, "project", None))
    with contextlib.chdir(folder):
        return console(
            Workspace.load(folder),
            host=args.host,
            port=args.port,
            token_file=tokens,
            action_token_file=actors,
            access_log=args.access_log,
        )


def _stream(args: argparse.Namespace) -> int:
    from windrow.commands.stream import stream
    from windrow.workspace import Workspace

    folder = Workspace.find(getattr(args, "project", None))
    with contextlib.chdir(folder), _stopping_spark():
        workspace = Workspace.load(folder)
        stream(workspace, args.sources, once=args.once, trigger=args.trigger, metrics=args.metrics)
    return 0


@contextlib.contextmanager
def _without_tracebacks_of_py4j() -> Iterator[None]:
    """Py4J, which talks to Spark, logs a traceback whenever a call is interrupted."""
    handler = logging.StreamHandler()
    handler.addFilter(lambda record: record.module != "java_gateway")
    root = logging.getLogger()
    if root.handlers:
        yield  # logging is set up by the caller, who decides what to show
        return
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


@contextlib.contextmanager
def _stopping_spark() -> Iterator[None]:
    """Stop the Spark that a command has started, before the prompt returns; no other."""
    before = _running_spark()
    try:
        yield
    except KeyboardInterrupt:
        raise  # Spark may still be busy, and is not to be waited for; it ends with this process
    except BaseException:
        _stop_unless(before)
        raise
    _stop_unless(before)


def _running_spark() -> Any:
    """The context of this process, if there is one; PySpark is not loaded to find out."""
    pyspark = sys.modules.get("pyspark")
    return None if pyspark is None else pyspark.SparkContext._active_spark_context


def _stop_unless(before: object) -> None:
    running = _running_spark()
    if running is not None and running is not before:
        running.stop()


def _add_address(one: argparse.ArgumentParser, port: int) -> None:
    """Where a server listens."""
    one.add_argument(
        "--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1, this machine)"
    )
    one.add_argument(
        "--port", type=_count, default=port, help=f"0 for any that is free (default: {port})"
    )


def _parser() -> argparse.ArgumentParser:
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

    parser = argparse.ArgumentParser(
        prog="windrow", description="Aggregates that stay true as data changes.", parents=[where]
    )
    parser.add_argument("--version", action="version", version=f"windrow {windrow.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

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

    one = commands.add_parser(
        "stream", parents=[where], help="take in what arrives in the streams of sources"
    )
    one.add_argument("sources", nargs="*", metavar="SOURCE", help="sources (default: all)")
    one.add_argument("--once", action="store_true", help="take in what is there now, and end")
    one.add_argument(
        "--trigger",
        type=_interval,
        default=0.5,
        metavar="TIME",
        help="between the starts of two micro-batches, such as 500ms or 2s (default: 500ms)",
    )
    one.add_argument("--metrics", metavar="[HOST:]PORT", help="serve figures there, for Prometheus")
    commands.add_parser("jars", help="fetch Spark's connector to Kafka, with Maven")

    one = commands.add_parser(
        "costs", parents=[where], help="what views keep: records, bytes, sharing, estimates"
    )
    one.add_argument("view", nargs="?", metavar="VIEW", help="a view (default: all)")
    one.add_argument("--root", metavar="ROOT", help="a state root (default: the project's)")
    one.add_argument("--exact", action="store_true", help="count records and keys; reads all")
    one.add_argument("--json", action="store_true", help="one line of JSON for each arrangement")

    one = commands.add_parser(
        "upload", parents=[where], help="put features online: write the records of all keys"
    )
    one.add_argument(
        "names", nargs="*", metavar="NAME", help="joins or groups (default: all joins)"
    )
    one.add_argument(
        "--as-of", metavar="TIME", help="features can be fetched from then on (default: now)"
    )
    one.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show bars (default: on a terminal)",
    )

    one = commands.add_parser(
        "fetch", parents=[where], help="the features of a key, as they are served"
    )
    one.add_argument("name", metavar="NAME", help="a join or group that is online")
    one.add_argument("keys", nargs="+", metavar="KEY=VALUE", help="such as user_id=7")
    one.add_argument("--at", metavar="TIME", help="as of then (default: now)")

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
    one.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show bars (default: on a terminal)",
    )

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
    one.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show bars (default: on a terminal)",
    )
    one.add_argument(
        "--rows", type=_count, default=5, metavar="N", help="rows to show (default: 5)"
    )
    return parser


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


def _interval(text: str) -> float:
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


if __name__ == "__main__":
    sys.exit(main())
