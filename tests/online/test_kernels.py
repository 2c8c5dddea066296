"""What a server loads before it answers is what fetches run."""

from __future__ import annotations

from windrow.online import evaluate, kernels, records


def test_kernels_are_there_once_they_are_loaded() -> None:
    kernels.load()
    for one in (evaluate._evaluate, evaluate._starts, records._checked, records._lane_bounds):
        assert one.signatures
