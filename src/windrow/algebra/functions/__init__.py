"""The declarations of all functions, a file for each family. A file that is added is found."""

from __future__ import annotations

import importlib
import pkgutil

from windrow.algebra.registry import FUNCTIONS

__all__ = ["FUNCTIONS"]

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_module.name}")
