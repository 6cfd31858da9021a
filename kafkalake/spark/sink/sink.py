"""`df.write.format("kafkalake")`, `df.writeStream.format("kafkalake")`: all rows of a job become records of topics, or none.

    driver    create the writer: validate options, ask the broker for the topics' properties (nothing is written yet)
    tasks     each writes its own staged file below `<lake>/staging/<job>/`
    driver    commit: ask the broker to append the files of the successful tasks as one transaction, and repeat until
              it answers. Idempotent by application and version: a job's own id and 0, or a stream's query id and batch id.

Failed, repeated and speculative attempts only leave unused files. A driver that dies before the broker has the
request has written nothing; one that dies after it, everything.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from kafkalake.errors import KafkaLakeError
from kafkalake.reader.columns import value_fields
from kafkalake.reader.read_options import TIME_ZONE_NOTE
from kafkalake.spark.sink.driver import StagedWrite, abort_write, begin_write, commit_write
from kafkalake.spark.source.hidden_tracebacks import hide_tracebacks
from kafkalake.spark.source.tasks import load_compiled_code
from kafkalake.storage.staging import staging_path

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark sets on the tasks of a stream. The query id is that of its checkpoint."""
FILE_SUFFIX = ".arrow"


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """The result of a task. `file`: None if it had no rows. used: (number of the topic, partition). query: set for streams."""

    directory: str
    file: str | None
    bytes: int
    batches: int
    records: int
    used: frozenset[tuple[int, int]]
    query: str | None


class Sink:
    """The writer of one job: created on the driver, sent to its tasks, and used again on the driver to commit."""

    def __init__(self, given: dict[str, str], schema: StructType, overwrite: bool, *, is_stream: bool) -> None:
        """Raise `ConfigurationError`, `BrokerUnavailableError` or `KafkaError`. Nothing is written then."""
        columns = to_arrow_schema(schema, timezone="UTC")
        self.write = begin_write(given, columns, is_stream=is_stream, is_overwriting=overwrite)
        self._time_zone = given.get(TIME_ZONE_NOTE) or "UTC"
        self._fields = value_fields(schema.names) if self.write.options.json_fields else {}

    # On executors.

    def stage(self, rows: Iterator[pa.RecordBatch], directory: str, query: str | None = None) -> Staged:
        """Write this task's rows into its own file. Raise `KafkaLakeError` with one sentence if they are invalid or this fails."""
        from kafkalake.spark.sink.staged_rows import RowStager, first_partition
        from kafkalake.storage.staged_file import StagedWriter

        load_compiled_code()

        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        first = next((batch for batch in rows if batch.num_rows), None)
        if first is None:
            return Staged(directory, None, 0, 0, 0, frozenset(), query)
        options = self.write.options
        path = staging_path(options.lake) / directory / f"task-{number:06}-{uuid.uuid4().hex}{FILE_SUFFIX}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with StagedWriter(str(path)) as writer:
                begins_with = first_partition(directory, number)
                stager = RowStager(writer, self.write.targets, options.topic, self.write.staged_bytes_max, begins_with)
                for batch in chain((first,), rows):
                    stager.add(self._records(batch))
                stager.finish()
        except OSError as error:
            raise KafkaLakeError(f"cannot stage records in {path.parent}: {error.strerror or error}") from error
        return Staged(directory, path.name, writer.bytes, writer.batches, writer.records, frozenset(stager.used), query)

    def _records(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        from kafkalake.reader.avro_records import avro_records
        from kafkalake.reader.json_texts import typed_records, with_values

        typed = self.write.options.typed
        if typed is not None and typed.avro is not None:
            return avro_records(rows, typed.avro, typed.key)
        if typed is not None:
            return typed_records(rows, typed.key, _variant_texts(rows))
        return with_values(rows, self._fields, self._time_zone) if self._fields else rows

    # On the driver.

    def commit(self, application: str, version: int, messages: Sequence[object]) -> None:
        """Ask the broker to append all staged records, once. Raise `KafkaLakeError` if they are not appended or this is unknown."""
        staged = [each for each in messages if isinstance(each, Staged) and each.file is not None]
        if not staged:
            return
        commit_write(
            self.write.options,
            StagedWrite(
                cluster_id=self.write.cluster_id,
                application=application,
                version=version,
                directory=staged[0].directory,
                topic_ids=self.write.topic_ids,
                partitions=list({target for each in staged for target in each.used}),
                files=[(each.file, each.bytes, each.batches, each.records) for each in staged if each.file],
            ),
        )

    def abort(self, directory: str | None) -> None:
        """Remove what a failed job staged, unless the broker may still be reading it."""
        if directory is not None:
            abort_write(self.write.options.lake, directory)


def _variant_texts(rows: pa.RecordBatch) -> dict[str, list[str | None]]:
    """Return the JSON of the columns that are variants."""
    from pyspark.sql.variant_utils import VariantUtils

    from kafkalake.reader.json_values import VARIANT

    texts = {}
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if field.type == VARIANT:
            values, metadata = (part.to_pylist() for part in column.flatten())
            texts[field.name] = [
                None if value is None else VariantUtils.to_json(value, of_value)
                for value, of_value in zip(values, metadata, strict=True)
            ]
    return texts


@hide_tracebacks
class KafkaLakeWriter(DataSourceArrowWriter):
    """A batch write. Its application is the user's or a unique id, with which task failures cause no duplicates."""

    def __init__(self, given: dict[str, str], schema: StructType, overwrite: bool) -> None:
        self._sink = Sink(given, schema, overwrite, is_stream=False)
        self._directory = f"job-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._sink.stage(iterator, self._directory)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options = self._sink.write.options
        self._sink.commit(options.application or self._directory, options.version, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._sink.abort(self._directory)


@hide_tracebacks
class KafkaLakeStreamWriter(DataSourceStreamArrowWriter):
    """The batches of a stream, each written once by query id and batch id, however often Spark repeats it."""

    def __init__(self, given: dict[str, str], schema: StructType, overwrite: bool) -> None:
        self._sink = Sink(given, schema, overwrite, is_stream=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        batch = None if context is None else context.getLocalProperty(_BATCH_ID)
        if not query or not batch:
            raise KafkaLakeError("this Spark does not tell its tasks which query and batch they belong to")
        return self._sink.stage(iterator, f"query-{query}-{batch}", query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        query = next((each.query for each in messages if isinstance(each, Staged)), None)
        if query is not None:
            self._sink.commit(query, batchId, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.abort(next((each.directory for each in messages if isinstance(each, Staged)), None))
