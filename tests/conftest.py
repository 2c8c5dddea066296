from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile(
    "windrow",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "no-shrink",
    settings.get_profile("windrow"),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "windrow"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one Spark session of a test run."""
    from windrow.spark.session import local_session

    session = local_session("windrow-tests", cores="2")
    yield session
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def _cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the part cache of the tests out of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINDROW_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: those without Spark, then those with it, then the slow ones."""

    def rank(item: pytest.Item) -> int:
        fixtures = getattr(item, "fixturenames", ())
        return 2 * (item.get_closest_marker("slow") is not None) + ("spark" in fixtures)

    items.sort(key=rank)
