"""The driver's own Spark session, for procedures that have Spark do work."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafkalake.extras import find_pandas_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 0.5
_making = threading.Lock()


@contextmanager
def driver_session(
    gateway: Mapping[str, object] | None, is_withdrawn: Callable[[], bool]
) -> Iterator[SparkSession | None]:
    """Yield the session of the JVM that listens at `gateway` (None: no session), whose jobs end when the procedure is withdrawn."""
    if gateway is None:
        yield None
        return
    with _making:
        spark = _session(gateway)
    group = f"kafkalake-{threading.get_ident()}"
    spark.sparkContext.setJobGroup(group, "CALL of a procedure", interruptOnCancel=True)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_S):
            if is_withdrawn():
                spark.sparkContext.cancelJobGroup(group)

    watcher = threading.Thread(target=watch, name="withdrawn", daemon=True)
    watcher.start()
    try:
        yield spark
    finally:
        ended.set()
        watcher.join()


def _session(gateway: Mapping[str, Any]) -> SparkSession:
    find_pandas_again()  # which PySpark asks for
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    running = SparkContext._active_spark_context
    if running is not None and not running._jsc.sc().isStopped():
        return SparkSession(running)
    SparkContext._active_spark_context = None
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(gateway["port"]), "PYSPARK_GATEWAY_SECRET": gateway["secret"]}
    connected = launch_gateway()  # type: ignore[no-untyped-call]
    java = connected.jvm.org.apache.spark
    jsc = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
    context = SparkContext(conf=SparkConf(_jconf=jsc.getConf()), gateway=connected, jsc=jsc)
    return SparkSession(context)
