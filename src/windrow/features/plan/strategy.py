"""Which strategy computes a pass, and why."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.errors import OptionError
from windrow.features import limits
from windrow.features.plan.arrangement import PlannedArrangement

MERGE, BROADCAST, TILES = "merge", "broadcast", "tiles"
GATHER = "gather"  # rows of the queries' keys are arranged for one run, and merged
STRATEGIES = (MERGE, BROADCAST, TILES)  # that can be forced; of rows that change, broadcast gathers


def choose_strategy(
    arrangements: Sequence[PlannedArrangement],
    events: int | None,
    queries: int | None,
    forced: str | None,
) -> tuple[str, str]:
    """How a pass is computed, and why."""
    changing = [one.name for one in arrangements if one.inputs.content.retracts]
    late = [one.name for one in arrangements if one.inputs.layout.changing]
    streamed = GATHER if changing else BROADCAST  # changes of one row have to meet
    if forced == TILES and changing:
        raise OptionError(
            f"strategy 'tiles' is not possible for {changing[0]}: a tile does not say which of its "
            "rows are still there; leave strategy out, or use 'merge' or 'broadcast'"
        )
    if forced == TILES and late:
        raise OptionError(
            f"strategy 'tiles' is not possible for {late[0]}: a tile does not say when its rows "
            "became known; leave strategy out, or use 'merge'"
        )
    if forced is not None:
        return streamed if forced == BROADCAST else forced, "as requested"
    hottest = max((one.todo.hottest for one in arrangements), default=0)
    if hottest > limits.LARGE_KEY_SLICES * limits.SLICE_ROWS and not late:
        return TILES, f"one key has {hottest:,} events or more, too many for a task"
    if any(one.todo.action != "build" for one in arrangements):
        return MERGE, "events are arranged"
    if queries is None or events is None:
        return MERGE, "the number of queries or events is not known"
    if queries <= limits.BROADCAST_QUERIES and queries * limits.BROADCAST_RATIO <= events:
        return streamed, f"{queries:,} queries are few beside {events:,} events not arranged"
    return MERGE, f"{queries:,} queries over {events:,} events"
