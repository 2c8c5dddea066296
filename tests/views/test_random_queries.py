"""Random queries as views: the grammar gives SQL, and a few examples are compared with Spark.

`tests/campaigns/views_fuzz.py` does the same for as long as one likes. WINDROW_VIEWS_SEED gives
other examples.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from view_cases import LONG, SEED
from view_fuzz import Example

EXAMPLES = 2 if LONG else 1


def test_the_grammar_gives_sql(spark: Any) -> None:
    """Spark takes nearly everything that is generated; otherwise little would be tested."""
    from view_oracle import Model

    taken = failed = 0
    for seed in range(6):
        example = Example.draw(random.Random(seed), seed)
        model = Model(spark, example.schema.ddl())
        for name, query in example.queries.items():
            try:
                model.define(name, query)
                taken += 1
            except Exception:
                failed += 1
    assert failed <= 0.1 * taken


@pytest.mark.parametrize("number", range(EXAMPLES))
def test_random_views(spark: Any, tmp_path: Path, number: int) -> None:
    """Every view equals its query after each batch, and none is refused."""
    seed = 1_000_000 + SEED * EXAMPLES + number
    example = Example.draw(random.Random(seed), seed)
    try:
        outcome = example.run(spark, tmp_path)
    except Exception as error:
        error.add_note(example.describe())
        raise
    assert not outcome.wrong, "\n\n".join([*outcome.wrong, example.describe()])
    assert not outcome.refused, f"seed {seed}: {outcome.refused}"
    assert outcome.checks
