"""`python -m kafkalake.spark.stream.process`: Spark's process for a streaming source, started by the scan's jar.

It runs the same module as Spark does, but starts faster (see `installed_pyspark`) and without pandas: pyarrow tests many of
its arguments for pandas types, and imports pandas to do so, 0.2 s. Planning a stream uses no pandas.
"""

from __future__ import annotations

import runpy
import sys

from kafkalake.extras import WithoutPandas
from kafkalake.spark.source.installed_pyspark import prefer_installed_pyspark

if __name__ == "__main__":
    prefer_installed_pyspark()
    sys.meta_path.insert(0, WithoutPandas())
    runpy.run_module("pyspark.sql.streaming.python_streaming_source_runner", run_name="__main__", alter_sys=True)
