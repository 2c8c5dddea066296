"""Parameters of statements: values in the places where a text has `:name`, or `?`.

Spark writes each value as a literal into the text, so that what is stored of a view is a statement
by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from windrow.errors import OptionError
from windrow.spark.nodes import java
from windrow.spark.parsing import for_spark
from windrow.spark.plans import active, expression_of, seq
from windrow.spark.sql_errors import sql_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HANDLER = "org.apache.spark.sql.catalyst.parser.ParameterHandler"

Args = Mapping[str, Any] | Sequence[Any]  # by name, or in the order of their places


def bound(session: SparkSession, text: str, args: Args) -> str:
    """The text of a statement with its parameters replaced; values are Python's, or columns."""
    if isinstance(args, str | bytes) or not isinstance(args, Mapping | Sequence):
        raise OptionError(
            f"args is {args!r}; give a mapping of names to values, for parameters such as :name, "
            "or a list of values, one for each ?"
        )
    handler = java(session, _HANDLER)
    # What Spark cannot read stands before all parameters, and stays as it is.
    readable = for_spark(text)
    head = max((at + 1 for at in range(len(text)) if text[at] != readable[at]), default=0)
    with active(session), sql_errors():
        if isinstance(args, Mapping):
            found = handler.substituteNamedParameters(readable, _literals(session, args))
        else:
            literals = _literals(session, dict(enumerate(args, 1)))
            values = [literals.apply(str(place)) for place in range(1, len(args) + 1)]
            found = handler.substitutePositionalParameters(readable, seq(session, values))
    return text[:head] + str(found._1())[head:]


def _literals(session: SparkSession, given: Mapping[Any, Any]) -> Any:
    """A Scala map of the literals that values are."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F  # noqa: N812

    found = {}
    for which, value in given.items():
        try:
            found[str(which)] = expression_of(session, F.lit(value))
        except (PySparkException, Py4JError, AttributeError, TypeError, ValueError) as error:
            raise OptionError(
                f"the parameter {which!r} is {value!r}, which is no value of SQL"
            ) from error
    utils = java(session, "org.apache.spark.api.python.PythonUtils")
    return session._jsparkSession.resolveAndValidateParameters(utils.toScalaMap(found))
