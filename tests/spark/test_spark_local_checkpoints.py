"""The files of checkpoints on this machine, written without Hadoop's processes, against those that Spark writes itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from written_lake import WrittenLake

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
OURS = "io.kafkalake.spark.LocalCheckpoints"
SPARKS = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
TIMEOUT_S = 90


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """One with settings of its own, as other tests' streams have changed those of the shared one."""
    fresh = spark.newSession()
    assert fresh.conf.get(SETTING, "none") == "none"
    return fresh


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"value"] * 3, 1_000)
    yield lake
    lake.close()


@pytest.fixture
def made(spark: SparkSession) -> Callable[..., JavaObject]:
    """Makes the file manager of a class, as Spark does, for a directory."""
    jvm = spark._jvm

    def make(name: str, directory: Path, umask: str = "022") -> JavaObject:
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        configuration.set("fs.permissions.umask-mode", umask)
        kind = jvm.org.apache.spark.util.Utils.classForName(name, True, False)
        arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 2)
        arguments[0], arguments[1] = jvm.org.apache.hadoop.fs.Path(directory.as_uri()), configuration
        (constructor,) = kind.getConstructors()
        return constructor.newInstance(arguments)

    return make


def path(spark: SparkSession, file: Path) -> JavaObject:
    return spark._jvm.org.apache.hadoop.fs.Path(f"file:{file}")


def write(spark: SparkSession, files: JavaObject, file: Path, content: bytes, *, may_replace: bool) -> None:
    stream = files.createAtomic(path(spark, file), may_replace)
    stream.write(content)
    stream.close()


def run(session: SparkSession, lake: WrittenLake, checkpoint: Path) -> list[int]:
    """The offsets that a run with `Trigger.AvailableNow` reads."""
    offsets: list[int] = []
    reader = (
        session.readStream.format("kafkalake")
        .option("lake", str(lake.path))
        .option("startingOffsets", "earliest")
        .schema("offset long")
    )
    writer = reader.load("clicks").writeStream.foreachBatch(
        lambda frame, _: offsets.extend(row.offset for row in frame.collect())
    )
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(TIMEOUT_S)
    assert query.exception() is None
    return sorted(offsets)


def test_the_first_stream_of_topics_gives_a_session_the_class(session: SparkSession, lake: WrittenLake) -> None:
    session.readStream.format("rate").load()
    session.read.format("kafkalake").option("lake", str(lake.path)).load("clicks")
    assert session.conf.get(SETTING, "none") == "none"
    session.readStream.format("kafkalake").option("lake", str(lake.path)).load("clicks").selectExpr("offset + 1")
    assert session.conf.get(SETTING) == OURS


def test_the_first_stream_of_a_catalogues_table_does(session: SparkSession, lake: WrittenLake) -> None:
    session.conf.set("spark.sql.catalog.lake", "io.kafkalake.spark.LakeCatalog")
    session.conf.set("spark.sql.catalog.lake.path", str(lake.path))
    session.readStream.table("lake.clicks")
    assert session.conf.get(SETTING) == OURS


def test_another_class_that_is_set_stays(session: SparkSession, lake: WrittenLake) -> None:
    session.conf.set(SETTING, SPARKS)
    session.readStream.format("kafkalake").option("lake", str(lake.path)).load("clicks")
    assert session.conf.get(SETTING) == SPARKS


def test_a_query_goes_on_with_a_checkpoint_of_sparks_and_back(
    session: SparkSession, spark: SparkSession, lake: WrittenLake, tmp_path: Path
) -> None:
    theirs = spark.newSession()
    theirs.conf.set(SETTING, SPARKS)
    checkpoint = tmp_path / "a b 100%25"
    assert run(theirs, lake, checkpoint) == [0, 1, 2]
    before = listed(checkpoint)
    lake.append_values("clicks", 0, [b"value"] * 2, 1_000)
    assert run(session, lake, checkpoint) == [3, 4]
    assert session.conf.get(SETTING) == OURS
    added = {name: mode for name, mode in listed(checkpoint).items() if name not in before}
    of_a_batch = {name: mode for name, mode in before.items() if name.startswith(("offsets", "commits"))}
    assert added == {name.replace("0", "1"): mode for name, mode in of_a_batch.items()}
    lake.append_values("clicks", 0, [b"value"], 1_000)
    assert run(theirs, lake, checkpoint) == [5]
    assert run(session, lake, checkpoint) == []


def listed(directory: Path) -> dict[str, int]:
    """The files below a directory, with their permissions, without Hadoop's checksums."""
    files = [file for file in directory.rglob("*") if file.is_file() and file.suffix != ".crc"]
    return {str(file.relative_to(directory)): file.stat().st_mode for file in files}


def test_files_are_as_sparks_own(spark: SparkSession, made: Callable[..., JavaObject], tmp_path: Path) -> None:
    for umask in ("022", "077"):
        for name in (OURS, SPARKS):
            directory = tmp_path / umask / name
            directory.mkdir(parents=True)
            files = made(name, directory, umask)
            assert files.isLocal()
            write(spark, files, directory / "7", b"seven", may_replace=False)
            write(spark, files, directory / "100%25 ü", b"first", may_replace=True)
            write(spark, files, directory / "100%25 ü", b"second", may_replace=True)
            assert (directory / "7").read_bytes() == b"seven"
            assert (directory / "100%25 ü").read_bytes() == b"second"
        assert listed(tmp_path / umask / OURS) == listed(tmp_path / umask / SPARKS)


@pytest.mark.parametrize("name", [OURS, SPARKS])
def test_a_file_that_is_there_is_not_replaced(
    spark: SparkSession, made: Callable[..., JavaObject], tmp_path: Path, name: str
) -> None:
    files = made(name, tmp_path)
    write(spark, files, tmp_path / "7", b"of another query", may_replace=False)
    with pytest.raises(Py4JJavaError, match=re.escape("org.apache.hadoop.fs.FileAlreadyExistsException")):
        write(spark, files, tmp_path / "7", b"mine", may_replace=False)
    assert (tmp_path / "7").read_bytes() == b"of another query"


@pytest.mark.parametrize("name", [OURS, SPARKS])
def test_a_write_is_seen_at_its_end_or_never(
    spark: SparkSession, made: Callable[..., JavaObject], tmp_path: Path, name: str
) -> None:
    files = made(name, tmp_path)
    stream = files.createAtomic(path(spark, tmp_path / "7"), False)
    stream.write(b"half")
    assert not (tmp_path / "7").exists()
    stream.cancel()
    stream.close()
    assert os.listdir(tmp_path) == []
    with pytest.raises(Py4JJavaError, match=re.escape("java.io.FileNotFoundException")):
        files.createAtomic(path(spark, tmp_path / "not there" / "7"), False)


def test_checksums_of_the_file_before_go_with_it(
    spark: SparkSession, made: Callable[..., JavaObject], tmp_path: Path
) -> None:
    write(spark, made(SPARKS, tmp_path), tmp_path / "7", b"before", may_replace=False)
    assert (tmp_path / ".7.crc").exists()
    write(spark, made(OURS, tmp_path), tmp_path / "7", b"after!", may_replace=True)
    settings = spark._jvm.org.apache.hadoop.conf.Configuration()
    opened = path(spark, tmp_path / "7").getFileSystem(settings).open(path(spark, tmp_path / "7"))  # which verifies
    assert bytes(opened.readNBytes(100)) == b"after!"
    opened.close()
