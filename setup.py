"""The one thing that pyproject.toml cannot say: a wheel also brings the jar that Spark finds among its own.

Spark's driver looks for data sources and extensions in `pyspark/jars` before any Python runs; there the jar works with nothing
configured, in sessions that kafkalake did not start too. See `kafkalake/spark/jvm`. A wheel cannot know whether pyspark is
installed: without it `import pyspark` finds a directory and no module, which `kafkalake/extras.py` knows.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

JAR = Path("kafkalake/spark/jvm/kafkalake-spark.jar")


class BuildWithJar(build_py):
    """Copies the jar to where the installed pyspark has its jars. An editable install does not: scripts/setup links it."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "pyspark" / "jars"
            self.mkpath(str(target))
            self.copy_file(str(JAR), str(target / JAR.name))


setup(cmdclass={"build_py": BuildWithJar})
