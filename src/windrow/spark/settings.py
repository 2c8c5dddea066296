"""Expressions mean the same in every session: Windrow's own are analysed under fixed settings.

The result of `hour(ts)`, `to_timestamp(text)` or `x / 0` depends on settings of the Spark session,
and so do the values that are read from a CSV file. A feature may not. So Windrow works in a clone
of the session it is given: the same tables, views and functions, the same resources, but UTC, ANSI
mode, and Spark's defaults for whatever else gives an expression or a file another meaning.

    the user's session     DataFrames and temporary views: what they are is the user's business
          │ clone
    the fixed session      files and tables; select, where, derive over anything

A DataFrame of the user is not evaluated under other settings than its own. Its analysed plan, in
which every expression has its zone and mode already, is taken into the clone; Windrow's expressions
are put on top and analysed there; and the whole is executed in the DataFrame's own session.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from windrow.errors import OptionError
from windrow.spark.nodes import java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIXED = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}

# Settings that give an expression or a file another meaning; Spark's defaults hold for them.
_MEANINGS = re.compile(
    r"spark\.sql\.("
    r"(ansi|legacy|parser|function|csv|json|xml|jsonGenerator|icu|decimalOperations|collation)\..*"
    r"|caseSensitive|timestampType|mapKeyDedupPolicy|columnNameOfCorruptRecord|charAsVarchar"
    r"|preserveCharVarcharTypeInfo|readSideCharPadding|variable\.substitute|chunkBase64String.*"
    r"|session\.collation.*"
    r"|files\.(ignore|archive).*"
    r"|parquet\.(binaryAsString|inferTimestampNTZ.*|int96.*|datetimeRebase.*|mergeSchema|fieldId.*"
    r"|respectSummaryFiles)"
    r"|sources\.partitionColumnTypeInference\.enabled"
    r")"
)
# Settings that say what a query may be written with; they stay as they are given.
_ALLOWED = re.compile(
    r"spark\.sql\.("
    r"(analyzer|lateralColumnAlias|defaultColumn|timeType|geospatial|types)\..*"
    r"|groupByOrdinal|orderByOrdinal|groupByAliases|crossJoin\.enabled|selfJoinAutoResolveAmbiguity"
    r"|runSQLOnFiles|operatorPipeSyntaxEnabled|pivotMaxValues|retainGroupColumns|maxNestedViewDepth"
    r")"
)


def is_remote(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def fixed_session(spark: SparkSession) -> SparkSession:
    """A clone of `spark` as it is now, in which expressions have their fixed meaning."""
    remote: Any = spark
    clone: SparkSession = remote.cloneSession() if is_remote(spark) else _clone(spark)
    found = clone.conf.getAll
    for name in found:
        if name not in FIXED and _MEANINGS.fullmatch(name) and clone.conf.isModifiable(name):
            clone.conf.unset(name)
    for name, value in FIXED.items():
        if found.get(name) != value:
            clone.conf.set(name, value)
    return clone


def settings_of(spark: SparkSession) -> dict[str, str]:
    """The settings of a session that give a query its meaning, or allow it at all."""
    found = spark.conf.getAll
    kept = (n for n in found if n in FIXED or _MEANINGS.fullmatch(n) or _ALLOWED.fullmatch(n))
    return {name: found[name] for name in sorted(kept)}


def _clone(spark: SparkSession) -> SparkSession:
    from pyspark.sql import SparkSession

    java: Any = spark._jsparkSession.cloneSession()
    clone = SparkSession(spark._sc, java)
    # The catalogue of a clone starts at the default one, whatever USE said.
    catalogue, database = spark.catalog.currentCatalog(), spark.catalog.currentDatabase()
    if clone.catalog.currentCatalog() != catalogue:
        clone.catalog.setCurrentCatalog(catalogue)
    if clone.catalog.currentDatabase() != database:
        clone.catalog.setCurrentDatabase(database)
    return clone


def release(clone: Any) -> None:
    """Release a clone; one of Spark Connect is kept on the server until then."""
    if is_remote(clone):
        with contextlib.suppress(Exception):
            clone._client.release_session()


def moved(frame: DataFrame, session: SparkSession) -> DataFrame:
    """`frame`, analysed as it is, as a DataFrame of another session on the same context."""
    if is_remote(frame.sparkSession):
        return frame  # it is analysed where it is executed
    from pyspark.sql.classic.dataframe import DataFrame

    plan = frame._jdf.queryExecution().analyzed()
    datasets = java(session, "org.apache.spark.sql.classic.Dataset")
    dataset = datasets.ofRows(session._jsparkSession, plan)
    return DataFrame(dataset, session)


def union(frames: Sequence[DataFrame], fixed: SparkSession) -> DataFrame:
    """The rows of all frames, by the names of columns.

    They are executed in one session: that of a DataFrame of the user, if there is one.
    """
    first, *others = sorted(frames, key=lambda frame: frame.sparkSession is fixed)
    session = first.sparkSession
    if is_remote(session):  # refuses to bring sessions together, although plans are only text
        others = [type(frame)(frame._plan, session) for frame in others]
    return functools.reduce(lambda a, b: a.unionByName(b), others, first)


def check_settings(spark: SparkSession, what: str) -> None:
    """Refuse SQL over a DataFrame whose session would give it another meaning.

    Only Spark Connect analyses a whole DataFrame at once, under one session's settings.
    """
    if not is_remote(spark):
        return
    for name, value in FIXED.items():
        if spark.conf.get(name) != value:
            raise OptionError(
                f"{what}: SQL over a DataFrame of Spark Connect is evaluated with the settings of "
                f"its session, where {name} is {spark.conf.get(name)!r}; set it to {value!r}, or "
                "give the table by its name or path"
            )
