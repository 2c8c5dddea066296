from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from serving_fake import Fake
from serving_worker import Serving, Start, running

from windrow.online.server.limits import Limits


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts workers; they are stopped afterwards."""
    with contextlib.ExitStack() as stack:

        def start(served: Any = None, limits: Limits | None = None, **options: Any) -> Serving:
            return stack.enter_context(running(served or Fake(), limits, **options))

        yield start


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    """One for all tests that change nothing."""
    with running(Fake()) as found:
        yield found
