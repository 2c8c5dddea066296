"""One random example: a schema, some views over it, and a history, compared at every step."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from view_grammar import Grammar, Schema, SchemaRows
from view_oracle import History
from view_tables import batches, first_rows

import windrow
from windrow.errors import UnsupportedSQL

VIEWS = 5  # in one project: a tick brings all of them up to date


@dataclass
class Outcome:
    """What happened to the views of an example."""

    views: int = 0
    checks: int = 0
    not_sql: list[str] = field(default_factory=list)  # queries that Spark itself does not take
    refused: dict[str, str] = field(default_factory=dict)  # reason: query
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Example:
    schema: Schema
    queries: dict[str, str]
    seed: int  # of the rows

    @classmethod
    def draw(cls, rng: random.Random, seed: int, views: int = VIEWS, depth: int = 3) -> Example:
        schema = Schema.draw(rng)
        grammar = Grammar.over(rng, schema)
        names = [f"v{number}" for number in range(views)]
        return cls(schema, {name: grammar.view(name, depth).sql for name in names}, seed)

    def describe(self) -> str:
        tables = [f"CREATE TABLE {n} ({c})" for n, c in self.schema.ddl().items()]
        views = [f"CREATE MATERIALIZED VIEW {n} AS {q}" for n, q in self.queries.items()]
        return "\n".join([f"rows of seed {self.seed}", *tables, *views])

    def run(self, spark: Any, root: Path) -> Outcome:
        outcome = Outcome()
        project = windrow.Project(root, spark=spark, progress=False)
        history = History.start(project, spark, self.schema.ddl())
        rows = SchemaRows(random.Random(self.seed), self.schema)
        history.write(first_rows(rows))
        for name, query in self.queries.items():
            self._create(history, name, query, outcome)
        outcome.views = len(history.views)
        for _ in self._steps(history, rows):
            for name in history.views:
                try:
                    problem = history.problem(name, stored=outcome.checks >= outcome.views)
                except Exception as error:
                    problem = f"view {name}: {head(error)}\n  query: {self.queries[name]}"
                outcome.checks += 1
                if problem is not None:
                    outcome.wrong.append(problem)
            if outcome.wrong:
                break
        return outcome

    def _create(self, history: History, name: str, query: str, outcome: Outcome) -> None:
        try:
            history.model.answer(query).toArrow()
        except Exception as error:
            # An earlier view that was not made, or one of the constructs that Spark does not nest.
            outcome.not_sql.append(f"{head(error)}\n  query: {query}")
            return
        try:
            history.create(name, query)
        except UnsupportedSQL as error:
            outcome.refused.setdefault(str(error).split(": ", 1)[-1], query)
        except Exception as error:
            outcome.wrong.append(f"view {name} was not created: {head(error)}\n  query: {query}")

    def _steps(self, history: History, rows: SchemaRows) -> Iterator[None]:
        yield
        for what, batch in batches(history.model, rows):
            history.write(batch, what)
            history.project.tick()
            yield


def head(error: Exception) -> str:
    """An error in one line: Spark's go on for pages, and end with what a Python worker said."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    causes = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Invalid)\b.*:", line)]
    return f"{type(error).__name__}: {' ... '.join([lines[0], *causes[-1:]])}"[:600]
