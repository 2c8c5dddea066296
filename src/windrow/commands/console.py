"""`windrow console`: the project in a web browser, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from windrow.commands.opening import open_console, open_served
from windrow.errors import OptionError
from windrow.workspace import Workspace


def console(
    workspace: Workspace,
    *,
    host: str = "127.0.0.1",
    port: int = 8090,
    token_file: str | None = None,
    action_token_file: str | None = None,
    access_log: bool = False,
) -> int:
    """Serve the console of a project; the exit code.

    `token_file` has the tokens of those who may look, `action_token_file` of those who may also
    act; `WINDROW_TOKENS` in the environment may have more of the first. Without any, everybody who
    can reach the address may look.
    """
    try:
        import windrow.console.app  # noqa: F401 (what is missing is told now)
        from windrow.online.server.listening import is_loopback
        from windrow.online.server.settings import Settings
        from windrow.online.server.supervisor import serve as run
        from windrow.online.server.tokens import Tokens
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("windrow"):
            raise
        raise OptionError(
            f"the console needs {error.name}; install it with `pip install 'windrow[console]'`"
        ) from error
    tokens = Tokens.find(token_file)  # what is wrong with them is told before anything starts
    if action_token_file is not None:
        Tokens((), Path(action_token_file))
    if not tokens and not is_loopback(host):
        print(
            f"windrow: {host} can be reached from other machines, and no token is asked for; give "
            "--token-file, or let a proxy decide who may look",
            file=sys.stderr,
        )
    settings = Settings(
        host,
        port,
        token_file=token_file,
        log_requests=access_log,
        mounting=partial(open_console, str(workspace.folder), action_token_file),
        features=False,
    )
    return run(
        partial(open_served, workspace.root, workspace.settings.storage_options, workspace.online),
        settings,
        lambda address: print(f"The console is at {address}/console/; Ctrl-C stops", flush=True),
    )
