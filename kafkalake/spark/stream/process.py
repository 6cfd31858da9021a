"""`python -m kafkalake.spark.stream.process`: Spark's process of a streaming source, which the scan's jar starts this way.

It is the module that Spark starts itself, begun sooner (see `installed_pyspark`) and without pandas: pyarrow asks of much that it
is given whether it is pandas', and imports that to find out, 0.2 s. Nothing that plans a stream is.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from kafkalake.spark.source.installed_pyspark import prefer_installed_pyspark


class WithoutPandas(MetaPathFinder):
    """An import of pandas fails as where it is not installed, which pyarrow and pyspark are ready for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("the process of a stream does without pandas", name=fullname)
        return None


if __name__ == "__main__":
    prefer_installed_pyspark()
    sys.meta_path.insert(0, WithoutPandas())
    runpy.run_module("pyspark.sql.streaming.python_streaming_source_runner", run_name="__main__", alter_sys=True)
