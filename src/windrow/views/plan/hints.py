"""How large groups are expected to be: what a hint, or a property of the view, says of them.

Plans that keep levels of candidates (see `windrow.views.run.levels`) have one level for each factor
of 16, so that no subgroup has more than about 16 rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.errors import OptionError
from windrow.spark.catalyst import Catalyst
from windrow.spark.hints import group_size_of

PROPERTY = "expected_group_size"
DEFAULT = 4_000_000_000
FAN_OUT = 16  # subgroups of a subgroup


@dataclass(frozen=True)
class GroupSize:
    """Rows that a group is expected to have, and who says so."""

    rows: int = DEFAULT
    why: str = "by default"

    @property
    def levels(self) -> int:
        """The number of stages: the logarithm of the size to the base of 16, rounded up.

        >>> [GroupSize(n).levels for n in (1, 16, 17, 256, 257, 4_000_000_000)]
        [1, 1, 2, 2, 3, 8]
        """
        levels, reach = 1, FAN_OUT
        while reach < self.rows:
            levels, reach = levels + 1, reach * FAN_OUT
        return levels

    def __str__(self) -> str:
        return f"groups of {self.rows:,} rows ({self.why})"


def group_size(c: Catalyst, java: Any, properties: Mapping[str, str]) -> GroupSize:
    """The size of the groups of an aggregate, a window or a sort of Spark's plan."""
    hinted = group_size_of(c.spark, java)
    if hinted is not None:
        return GroupSize(hinted, "by the hint")
    text = properties.get(PROPERTY)
    if text is None:
        return GroupSize()
    if not text.isdigit() or int(text) < 1:
        raise OptionError(
            f"the property {PROPERTY} is {text!r}; it is how many rows a group has, such as '1000'"
        )
    return GroupSize(int(text), f"by the property {PROPERTY}")
