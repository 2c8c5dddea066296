"""A short campaign of damage; `make chaos` runs the long one."""

from __future__ import annotations

import damage


def test_damage_is_an_error_that_names_the_file_or_changes_nothing() -> None:
    report = damage.run(count=120, seed=0)
    assert report["survived"], report
    assert report["wrong"] == []
    assert report["faults"] == 120
    for outcomes in report["outcomes"].values():
        assert outcomes.get("right", 0) > 0
    assert report["outcomes"]["shard"]["error"] > report["outcomes"]["shard"]["right"]
