"""What a user sees of a `KafkaLakeError` that is raised where Spark runs Python for a data source: its sentence, no traceback.

Spark puts the traceback of its Python process into the message of its own exception: twenty lines of ours for a misspelt
option. Its processes leave it out where `SPARK_HIDE_TRACEBACK` is set when they report an error, which is what Spark's setting
`spark.sql.execution.pyspark.udf.hideTraceback.enabled` does as well. A process ends with the error that it reports, so that
the variable counts for this one only. Errors of other kinds, and all where `KAFKALAKE_DEBUG` is set, keep their tracebacks.

Source: pyspark, `util.handle_worker_exception`.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, TypeVar

from kafkalake.errors import KafkaLakeError

_Class = TypeVar("_Class", bound=type)


def plain_errors(of: _Class) -> _Class:
    """A class decorator: for what the class's public methods and `__init__` raise. Generators are left as they are."""
    for name, member in list(vars(of).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(of, name, _plain(member))
    return of


def _plain(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except KafkaLakeError:
            if not os.environ.get("KAFKALAKE_DEBUG"):
                os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            raise

    return called
