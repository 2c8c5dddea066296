"""The page of a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any


def page_of(report: Mapping[str, Any]) -> str:
    """One file: nothing is loaded from elsewhere, and all text is escaped."""
    return f"<!doctype html><pre>{escape(json.dumps(report, indent=1))}</pre>"
