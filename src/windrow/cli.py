"""The command line: `windrow init`, `plan`, `backfill`, `sql`, `upload`, `serve` and others.

Arguments in, an exit code out. What a command does is in `windrow.commands`; here is only what all
have in common: the project folder, and how errors are told.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from windrow.commands.arguments import parser
from windrow.errors import WindrowError
from windrow.priority import give_way

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
        args = parser().parse_args(argv)
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
    if getattr(args, "background", False):
        give_way()  # before anything is started
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


if __name__ == "__main__":
    sys.exit(main())
