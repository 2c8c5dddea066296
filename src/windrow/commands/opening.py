"""What a server answers from, opened in each worker's process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.workspace import Workspace

if TYPE_CHECKING:
    from windrow.console.app import Console
    from windrow.online.fetched import Served
    from windrow.online.server.logs import Log
    from windrow.online.server.tokens import Tokens


def open_served(
    root: str,
    storage_options: Mapping[str, str],
    online: str | None = None,
    log_rate: float = 0.0,
    log_keep: str | None = None,
) -> Served:
    """What is served of a state root, from the store `online`."""
    from windrow.project import Project

    options = dict(storage_options) or None
    project = Project(
        root, storage_options=options, online=online, log_rate=log_rate, log_keep=log_keep
    )
    return project.served


def open_console(folder: str, actors: str | None, tokens: Tokens, log: Log) -> Console:
    """The console of a project folder."""
    from windrow.console.app import Console
    from windrow.console.looking import Definitions, Looking
    from windrow.console.sessions import Visitors
    from windrow.online.server.tokens import Tokens

    workspace = Workspace.load(folder)
    definitions = Definitions(workspace.joins, workspace.groups, workspace.sources)
    looking = Looking(workspace.project(progress=False), definitions)
    may_act = Tokens() if actors is None else Tokens((), Path(actors))
    return Console(looking, Visitors(tokens, may_act), log)
