"""`windrow serve`: features over HTTP, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from typing import TYPE_CHECKING

from windrow.commands.opening import open_console, open_served
from windrow.errors import OptionError
from windrow.workspace import Workspace

if TYPE_CHECKING:
    from windrow.online.server.settings import Mounting


def serve(
    workspace: Workspace,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    workers: int = 1,
    token_file: str | None = None,
    max_body: int = 2**20,
    max_keys: int = 10_000,
    timeout: float = 10.0,
    access_log: bool = False,
    log_rate: float = 0.0,
    log_keep: str | None = None,
    console: bool = True,
) -> int:
    """Serve everything of the project that is online; the exit code.

    `token_file` has bearer tokens, one a line; `WINDROW_TOKENS` in the environment may have more.
    Without any, everybody who can reach the address may ask. `log_rate` is the share of requests
    whose answers are logged, for `windrow consistency`, and `log_keep` for how long they are kept
    (None: for ever). With `console`, the console is beside it,
    at `/console/`, if what it needs is installed.
    """
    try:
        from windrow.online.server.limits import Limits
        from windrow.online.server.listening import is_loopback
        from windrow.online.server.settings import Settings
        from windrow.online.server.supervisor import serve as run
        from windrow.online.server.tokens import Tokens
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("windrow"):
            raise
        raise OptionError(
            f"serving needs {error.name}; install it with `pip install 'windrow[server]'`"
        ) from error
    settings = Settings(
        host,
        port,
        workers,
        token_file,
        access_log,
        Limits(body=max_body, keys=max_keys, timeout=timeout),
        _mounting(workspace) if console else None,
    )
    tokens = Tokens.find(token_file)  # what is wrong with them is told before anything starts
    if not tokens and not is_loopback(host):
        print(
            f"windrow: {host} can be reached from other machines, and no token is asked for; give "
            "--token-file, or let a proxy decide who may ask",
            file=sys.stderr,
        )
    count = f"{workers} workers" if workers > 1 else "1 worker"
    options = workspace.settings.storage_options
    return run(
        partial(open_served, workspace.root, options, workspace.online, log_rate, log_keep),
        settings,
        lambda address: print(f"Serving at {address} with {count}; Ctrl-C stops", flush=True),
    )


def _mounting(workspace: Workspace) -> Mounting | None:
    """What makes the console in a worker; None if it is not installed."""
    if importlib.util.find_spec("jinja2") is None:
        return None
    return partial(open_console, str(workspace.folder), None)
