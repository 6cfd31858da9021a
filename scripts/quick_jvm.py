"""JVMs that live for seconds, or have little to do, as those of tests: options with which they cost less.

Archives of loaded classes (class data sharing) are the greater part: a JVM that has one reads, verifies and links no class anew. A
start of Apache Kafka takes half of its processor time then, a Spark session that writes a small table two thirds. A JVM takes an
archive only if it is the same JVM with the same jars in front of its class path; otherwise it goes on without.

    python scripts/quick_jvm.py    makes those archives that are not there, in about a minute; see `scripts/setup --peers`
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import jars
import local_spark

ARCHIVES = jars.PROJECT / ".cache" / "classes"
SILENT = "-Xlog:cds*=off"
"""A JVM that cannot use an archive says so on stdout, where tests look for what a program prints."""
MAKING_S = 300.0
"""The longest that a JVM may take to write its archive when it ends."""

_UNCOMPILED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=128m")
"""Half of the processor time would go into compiling.

Without the upper tiers there are 48 MB for code, of which Spark's many generated classes fill most, and then a tenth of its
processor time goes into sweeping them.
"""


def java() -> str:
    """The java command: of JAVA_HOME where it is set, else of PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


@cache
def options(name: str) -> tuple[str, ...]:
    """The options of a JVM with the jars of "kafka" or "spark". Without its archive where none was made of the present jars."""
    path = _path(name)
    is_there = path is not None and path.exists()
    return (*_UNCOMPILED, *((f"-XX:SharedArchiveFile={path}", SILENT) if is_there else ()))


def kafka_command(*more: str) -> list[str]:
    """The command of a JVM with Kafka's jars, up to its main class or program. more: options, such as that of the heap."""
    return [java(), *options("kafka"), *more, "-cp", ":".join(jars.jars("kafka"))]


def _path(name: str) -> Path | None:
    """The file of an archive, named by the JVM and the jars that it is good for. None where one of them is missing."""
    jvm = shutil.which(java())
    of_jars = _spark_jars() if name == "spark" else jars.remembered(name)
    if jvm is None or not of_jars:
        return None
    described = "\n".join(f"{path} {os.stat(path).st_mtime_ns}" for path in [os.path.realpath(jvm), *of_jars])
    return ARCHIVES / f"{name}-{hashlib.sha256(described.encode()).hexdigest()[:16]}.jsa"


def _spark_jars() -> list[str]:
    pyspark = find_spec("pyspark")  # whose import takes a while
    assert pyspark is not None and pyspark.origin is not None
    return sorted(map(str, (Path(pyspark.origin).parent / "jars").glob("*.jar")))


def make() -> list[tuple[str, str]]:
    """Make the archives that are missing, and remove those of other jars. Return each name, and what was done or went wrong."""
    ARCHIVES.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as at_once:
        return list(at_once.map(_make_one, MAKERS))


def _make_one(name: str) -> tuple[str, str]:
    path = _path(name)
    if path is None:
        return name, "no Java or no jars"
    for other in ARCHIVES.glob(f"{name}-*"):
        if other != path:
            other.unlink()
    if path.exists():
        return name, "already there"
    partial = path.with_suffix(f".{os.getpid()}")  # a JVM that is given half an archive crashes
    try:
        MAKERS[name](partial)
        partial.replace(path)
    except Exception as error:  # tests run without
        return name, f"not made: {error}"
    finally:
        partial.unlink(missing_ok=True)
    return name, "made"


def _making(path: Path) -> tuple[str, ...]:
    return (*_UNCOMPILED, f"-XX:ArchiveClassesAtExit={path}", SILENT)


def _make_of_kafka(path: Path) -> None:
    """A broker's classes; the tools have many of them in common with it."""
    sys.path.append(str(jars.PROJECT / "tests"))
    from kafka_reference import ApacheKafka

    with ApacheKafka(jvm=_making(path)) as broker:
        broker.stop(MAKING_S)


def _make_of_spark(path: Path) -> None:
    """The classes of a session that writes and reads a small Delta table."""
    subprocess.run(
        [sys.executable, __file__, TRAIN],
        env=os.environ | {"SPARK_SUBMIT_OPTS": " ".join(_making(path))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=MAKING_S,
        check=True,
    )


def _train_spark() -> None:
    with tempfile.TemporaryDirectory() as directory:
        settings = local_spark.settings(Path(directory), jar_sets=("delta", "spark-kafka")) | local_spark.FEW_ROWS
        session = local_spark.session(master="local[2]", name="class archive", of=settings)
        rows = session.createDataFrame([(n, str(n)) for n in range(10)], "id long, name string")
        for mode in ("overwrite", "append"):
            rows.write.format("delta").mode(mode).save(f"{directory}/table")
        session.read.format("delta").load(f"{directory}/table").createOrReplaceTempView("numbers")
        session.sql("SELECT name, count(*), max(id) FROM numbers GROUP BY name ORDER BY name").collect()
        session.sql("SELECT a.id FROM numbers a JOIN numbers b ON a.id = b.id WHERE a.id > 3").toPandas()
        local_spark.end(session, MAKING_S)


MAKERS: dict[str, Callable[[Path], None]] = {"spark": _make_of_spark, "kafka": _make_of_kafka}
TRAIN = "--train-spark"

if __name__ == "__main__":
    if sys.argv[1:] == [TRAIN]:
        _train_spark()
    else:
        for made, said in make():
            print(f"classes of {made}: {said}")
