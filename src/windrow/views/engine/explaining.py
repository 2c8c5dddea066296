"""What EXPLAIN answers: plans, estimates of what they keep, and what the last ticks did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from windrow.spark.settings import settings_of
from windrow.views.costs import ticks
from windrow.views.costs.catalogue import RECORDS, arrangements, stored_estimates
from windrow.views.costs.explain import analyzed, with_estimates
from windrow.views.engine.definition import ViewDefinition
from windrow.views.engine.planning import Planning
from windrow.views.history.history import History
from windrow.views.relations.relations import Relations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ANALYZED = 3  # runs of a view that EXPLAIN ANALYZE shows


class Explaining:
    """Explains the views of a project, and queries that could be views."""

    def __init__(self, history: History, relations: Relations, planning: Planning) -> None:
        self._history, self._relations, self._planning = history, relations, planning

    def explain(
        self,
        what: str | DataFrame,
        extended: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> str:
        """The plan of a view, or of a query that could be one."""
        if not isinstance(what, str):
            plan = self._planning.plan(
                "explained", what, settings_of(what.sparkSession), properties
            )
            return str(plan)
        self._history.refresh()
        found = self._relations.find(what, "view")
        definition = ViewDefinition.from_json(found.definition)
        lines = [definition.plan]
        if extended:
            frame = self._planning.frame_of(found.name, definition)
            text = self._planning.catalyst(definition.settings).optimized_text(frame)
            lines += ["", "Spark's optimised plan:", text]
        return "\n".join(lines)

    def explain_cost(
        self, what: str | DataFrame, properties: Mapping[str, str] | None = None
    ) -> str:
        """The plan of a view, or of a query that could be one, with estimates of what it keeps.

        Those of a view are the ones that were made before it was filled.
        """
        if isinstance(what, str):
            found = self._relations.find(what, "view")
            definition = ViewDefinition.from_json(found.definition)
            job = self._planning.job(found.name, definition)
            return with_estimates(job.plan, stored_estimates(found, job.places))
        settings = settings_of(what.sparkSession)
        plan = self._planning.plan("explained", what, settings, properties)
        return with_estimates(plan, self._planning.estimates(plan, settings, always=True))

    def explain_analyze(self, name: str) -> str:
        """The plan of a view with the size of what it keeps, and what the last ticks did."""
        self._history.refresh()
        found = self._relations.find(name, "view")
        job = self._planning.job(found.name, ViewDefinition.from_json(found.definition))
        lines = arrangements(self._relations, self._history, found.name)
        runs = ticks.last_runs(self._history.notes(RECORDS), [found.name], ANALYZED)
        return analyzed(job.plan, lines, job.places, runs[found.name])
