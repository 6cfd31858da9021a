"""The machine stops after a group was told how far its output goes: the output has all of that, and every reader reads it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from forgetful_disk import ForgetfulDisk
from long_runs import first_of
from pyspark.sql import SparkSession

from kafkalake.jobs.consume.output import ConsumedOutput, DeltaOutput, ParquetOutput

GROUP = "etl"


def offsets(end: int) -> dict[str, dict[str, int]]:
    return {"clicks": {"0": end}}


@pytest.mark.parametrize("output_format", ["delta", "parquet"])
@pytest.mark.parametrize("seed", first_of(range(2), 1))
def test_what_the_group_was_told_is_in_the_output(
    spark: SparkSession, tmp_path: Path, output_format: str, seed: int
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    random, disk, path = Random(seed), ForgetfulDisk(root, tmp_path / "aside"), root / "deep" / "out"
    end = 0
    for _ in range(2):  # a run each
        output: ConsumedOutput = (
            DeltaOutput(spark, str(path), GROUP, disk)
            if output_format == "delta"
            else ParquetOutput(str(path), GROUP, disk)
        )
        assert output.offsets({("clicks", 0): end}) == (offsets(end) if end else None)
        for _ in range(2):
            output.write(spark.range(end, end + 20, numPartitions=2), offsets(end + 20))
            end += 20
        output.close()
        disk.lose_power(random)
        spark.catalog.clearCache()
        assert sorted(row.id for row in spark.read.format(output_format).load(str(path)).collect()) == list(range(end))
