"""Shows users only the sentence of a `KafkaLakeError` raised in Spark's Python code for a data source, not the traceback.

Spark puts the traceback of its Python process into the message of its own exception: twenty lines of ours for a misspelt
option. Its processes omit it if `SPARK_HIDE_TRACEBACK` is set when they report an error, which is also the effect of Spark's
setting `spark.sql.execution.pyspark.udf.hideTraceback.enabled`. A process ends with the error that it reports, so the
variable affects only this error. Other errors, and all errors if `KAFKALAKE_DEBUG` is set, keep their tracebacks.

Source: pyspark, `util.handle_worker_exception`.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import TypeVar

from kafkalake.errors import KafkaLakeError

_Class = TypeVar("_Class", bound=type)


def hide_tracebacks(of: _Class) -> _Class:
    """Decorate a class, so that errors of its public methods and `__init__` are plain. Generators are left unchanged."""
    for name, member in list(vars(of).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(of, name, _plain(member))
    return of


def _plain(method: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(method)
    def called(*arguments: object, **named: object) -> object:
        try:
            return method(*arguments, **named)
        except KafkaLakeError:
            if not os.environ.get("KAFKALAKE_DEBUG"):
                os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            raise

    return called
