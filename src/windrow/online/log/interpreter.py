"""Processes that share no interpreter with requests."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

# The same modules as here, wherever they were found.
_PROGRAM = """
import importlib, sys
module, count, *rest = sys.argv[1:]
own, sys.path[:] = rest[:int(count)], rest[int(count):]
importlib.import_module(module).run(*own)
"""


def start(module: str, *args: str, **options: Any) -> subprocess.Popen[bytes]:
    """Call `run` of a module in a new interpreter.

    Ctrl-C is for whoever started it. It stays in the session: Linux may divide processors between
    sessions first, and would let a process of another one finish its turn, whatever its priority.
    """
    program = [sys.executable, "-c", _PROGRAM, module, str(len(args)), *args, *sys.path]
    return subprocess.Popen(program, process_group=0, **options)
