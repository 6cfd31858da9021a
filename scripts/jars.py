"""The jars that sessions, tests and benchmarks put on a Java class path, as separate named sets.

Spark's own ivy resolves them into the ordinary ivy cache, so Java and pyspark are all that is needed (no mvn). The sets stay
apart because they must not meet on one class path: Apache Kafka's server jars bring their own Scala, Jackson and log4j, which
a Spark session does not survive. What was resolved is remembered in `.cache/jars/<set>.json`, so that asking again costs no JVM.

    python scripts/jars.py delta              the set's paths, one a line
    python scripts/jars.py --classpath kafka  the same, joined by ':'
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
SPARK_DEFAULTS = PROJECT / "spark-conf" / "spark-defaults.conf"
REMEMBERED = PROJECT / ".cache" / "jars"


class JarsMissing(Exception):
    """A set could not be resolved; the text says which coordinates and why."""


@dataclass(frozen=True)
class JarSet:
    """Maven coordinates (group:artifact:version) and what of their dependencies stays away (group:artifact, `*` allowed)."""

    coordinates: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    transitive: bool = True


def spark_defaults() -> dict[str, str]:
    """The settings of spark-conf/spark-defaults.conf: the same for spark-submit, tests and benchmarks."""
    settings = {}
    for line in SPARK_DEFAULTS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, value = line.split(None, 1)
            settings[name] = value.strip()
    return settings


def jar_set(name: str) -> JarSet:
    """The set of this name: `delta`, `kafka` (broker, tools), `mirror` (MirrorMaker) or `spark-kafka` (Spark's Kafka connector)."""
    if name == "delta":
        settings = spark_defaults()
        return JarSet(
            tuple(settings["spark.jars.packages"].split(",")),
            tuple(settings["spark.jars.excludes"].split(",")),
        )
    if name == "kafka":
        return JarSet(
            (
                "org.apache.kafka:kafka_2.13:4.1.1",
                "org.apache.kafka:kafka-tools:4.1.1",
                # Without it the broker has a log interface and no log.
                "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
            ),
            ("org.apache.kafka:connect-*",),
        )
    if name == "mirror":
        return JarSet(("org.apache.kafka:connect-mirror:4.1.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"))
    if name == "spark-kafka":
        # Named one by one: the connector asks for a token provider of its own version, which was never published.
        return JarSet(
            (
                "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
                "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
                "org.apache.kafka:kafka-clients:3.9.1",
                "org.apache.commons:commons-pool2:2.12.1",
            ),
            transitive=False,
        )
    raise KeyError(f"no jar set {name!r}: delta, kafka, mirror and spark-kafka are there")


def jars(name: str) -> list[str]:
    """The absolute paths of a set's jars, resolved first where one is missing. Raises `JarsMissing`."""
    return remembered(name) or resolve([name])[name]


def remembered(name: str) -> list[str] | None:
    """The set's paths without a JVM, or None where they were never resolved, have changed, or a file is gone."""
    try:
        found = json.loads((REMEMBERED / f"{name}.json").read_text())
    except (OSError, ValueError):
        return None
    if found.get("set") != repr(jar_set(name)) or not all(os.path.isfile(path) for path in found["jars"]):
        return None
    return list(found["jars"])


def resolve(names: Iterable[str]) -> dict[str, list[str]]:
    """Resolve sets in one JVM and remember them. Raises `JarsMissing`."""
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway(popen_kwargs={"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL})
    try:
        resolved = {name: _resolve_with_ivy(gateway.jvm, name) for name in names}
        if "kafka" in resolved:
            resolved["kafka"] += _scala_library()
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends when this pipe breaks
        gateway.proc.wait(timeout=30)
    REMEMBERED.mkdir(parents=True, exist_ok=True)
    for name, paths in resolved.items():
        partial = REMEMBERED / f"{name}.json.{os.getpid()}"
        partial.write_text(json.dumps({"set": repr(jar_set(name)), "jars": paths}, indent=1))
        partial.replace(REMEMBERED / f"{name}.json")
    return resolved


def _resolve_with_ivy(jvm: object, name: str) -> list[str]:
    """What `spark-submit --packages` does (org.apache.spark.util.MavenUtils), without a Spark application."""
    from py4j.protocol import Py4JJavaError

    wanted = jar_set(name)
    said = jvm.java.io.ByteArrayOutputStream()  # type: ignore[attr-defined]
    printer = jvm.java.io.PrintStream(said)  # type: ignore[attr-defined]
    maven = jvm.org.apache.spark.util.MavenUtils  # type: ignore[attr-defined]
    converters = jvm.scala.jdk.javaapi.CollectionConverters  # type: ignore[attr-defined]
    none = jvm.scala.Option.empty()  # type: ignore[attr-defined]
    excluded = jvm.java.util.ArrayList()  # type: ignore[attr-defined]
    for pattern in wanted.excluded:
        excluded.add(pattern)
    try:
        settings = maven.buildIvySettings(none, none, True, printer)
        found = maven.resolveMavenCoordinates(
            ",".join(wanted.coordinates),
            settings,
            none,
            wanted.transitive,
            converters.asScala(excluded).toSeq(),
            False,
            printer,
        )
    except Py4JJavaError as error:
        raise JarsMissing(
            f"cannot resolve {', '.join(wanted.coordinates)}: {error.java_exception.getMessage()}\n"
            + "\n".join(str(said.toString()).strip().splitlines()[-20:])
        ) from None
    return sorted(converters.asJava(found))


def _scala_library() -> list[str]:
    """Spark's ivy never hands out Scala's library, because Spark has it; Kafka's own process needs it as well."""
    import pyspark

    return [str(path) for path in (Path(pyspark.__file__).parent / "jars").glob("scala-library-2.13.*.jar")]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Resolve and list jars.")
    parser.add_argument("sets", nargs="+", choices=["delta", "kafka", "mirror", "spark-kafka"])
    parser.add_argument("--classpath", action="store_true", help="one line, joined by ':'")
    parser.add_argument("--quiet", action="store_true", help="print what had to be resolved, not the paths")
    options = parser.parse_args(arguments)
    missing = [name for name in options.sets if remembered(name) is None]
    try:
        if missing:
            resolve(missing)
    except JarsMissing as error:
        print(error, file=sys.stderr)
        return 1
    if options.quiet:
        for name in options.sets:
            print(f"jars {name}: {'resolved' if name in missing else 'already there'} ({len(jars(name))} files)")
    else:
        paths = [path for name in options.sets for path in jars(name)]
        print((":" if options.classpath else "\n").join(paths))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
