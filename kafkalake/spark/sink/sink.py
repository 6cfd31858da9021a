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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from kafkalake.errors import BrokerUnavailableError, ConfigurationError, KafkaLakeError
from kafkalake.metadata.identity import known_cluster_id
from kafkalake.metadata.paths import require_lake
from kafkalake.reader.columns import value_fields
from kafkalake.reader.lake_broker import located, running_addresses
from kafkalake.reader.read_options import TIME_ZONE_NOTE
from kafkalake.spark.sink.write_options import WriteOptions, parse_write_options
from kafkalake.spark.sink.write_target import Target, check_columns, check_fields
from kafkalake.spark.source.hidden_tracebacks import hide_tracebacks
from kafkalake.spark.source.tasks import load_compiled_code
from kafkalake.storage.staging import ASKED_FILE, remove_directory, staging_path

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

    def __init__(self, given: dict[str, str], schema: StructType, overwrite: bool) -> None:
        """Raise `ConfigurationError`, `BrokerUnavailableError` or `KafkaError`. Nothing is written then."""
        if overwrite:
            raise ConfigurationError('a topic cannot be overwritten, only added to: use mode("append") or INSERT INTO')
        self.options = parse_write_options(located(given))
        columns = to_arrow_schema(schema, timezone="UTC")
        if self.options.is_typed:
            check_fields(columns)
        else:
            check_columns(columns, self.options.topic, self.options.json_fields)
        self._time_zone = given.get(TIME_ZONE_NOTE) or "UTC"
        self._fields = value_fields(schema.names) if self.options.json_fields else {}
        wanted = None if self.options.topic is None else [self.options.topic]
        self._cluster_id = known_cluster_id(require_lake(self.options.lake))
        answer = self._ask_once({"ask": "describe", "topics": wanted})
        self._ids = [(topic["name"], topic["id"]) for topic in answer["topics"]]
        self._targets = {
            topic["name"]: Target(
                topic["name"], number, topic["partitions"], topic["message_bytes_max"], topic["key_required"]
            )
            for number, topic in enumerate(answer["topics"])
        }
        self._bytes_max: int = answer["bytes_max"]

    # On executors.

    def stage(self, rows: Iterator[pa.RecordBatch], directory: str, query: str | None = None) -> Staged:
        """Write this task's rows into its own file. Raise `KafkaLakeError` with one sentence if they are invalid or this fails."""
        from kafkalake.spark.sink.staged_rows import RowStager
        from kafkalake.storage.staged_file import StagedWriter

        load_compiled_code()

        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        first = next((batch for batch in rows if batch.num_rows), None)
        if first is None:
            return Staged(directory, None, 0, 0, 0, frozenset(), query)
        path = staging_path(self.options.lake) / directory / f"task-{number:06}-{uuid.uuid4().hex}{FILE_SUFFIX}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with StagedWriter(str(path)) as writer:
                stager = RowStager(writer, self._targets, self.options.topic, self._bytes_max, number)
                for batch in chain((first,), rows):
                    stager.add(self._records(batch))
                stager.finish()
        except OSError as error:
            raise KafkaLakeError(f"cannot stage records in {path.parent}: {error.strerror or error}") from error
        return Staged(directory, path.name, writer.bytes, writer.batches, writer.records, frozenset(stager.used), query)

    def _records(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        from kafkalake.reader.json_texts import typed_records, with_values

        if self.options.is_typed:
            return typed_records(rows, self.options.key)
        return with_values(rows, self._fields, self._time_zone) if self._fields else rows

    # On the driver.

    def commit(self, application: str, version: int, messages: Sequence[Any]) -> None:
        """Ask the broker to append all staged records, once. Raise `KafkaLakeError` if they are not appended or this is unknown."""
        staged = [each for each in messages if isinstance(each, Staged) and each.file is not None]
        if not staged:
            return
        directory = staging_path(self.options.lake) / staged[0].directory
        used = sorted({target for each in staged for target in each.used})
        body = {
            "ask": "append",
            "application": application,
            "version": version,
            "directory": staged[0].directory,
            "topics": self._ids,
            "partitions": used,
            "files": [(each.file, each.bytes, each.batches, each.records) for each in staged],
        }
        self._ask_append(body, directory)
        remove_directory(directory)

    def abort(self, directory: str | None) -> None:
        """Remove what a failed job staged, unless the broker may still be reading it."""
        if directory is None:
            return
        path = staging_path(self.options.lake) / directory
        if not (path / ASKED_FILE).exists():
            remove_directory(path)

    def _ask_append(self, body: dict[str, Any], directory: Path) -> None:
        from kafkalake.client.staged_append import OutcomeUnknownError, ask_until

        asked = directory / ASKED_FILE
        asked.touch()
        try:
            ask_until(self._addresses, body | {"cluster_id": self._cluster_id}, self.options.commit_timeout_s)
        except OutcomeUnknownError as error:
            raise KafkaLakeError(
                f"it is not known whether the records were appended, {error}; they are all there or none is. "
                "A write with txnAppId and txnVersion may simply be repeated"
            ) from error
        except KafkaLakeError:
            asked.unlink(missing_ok=True)
            raise

    def _ask_once(self, body: dict[str, Any]) -> dict[str, Any]:
        from kafkalake.client.staged_append import DESCRIBE_TIMEOUT_S, ask_once

        try:
            return ask_once(self._addresses(), body | {"cluster_id": self._cluster_id}, DESCRIBE_TIMEOUT_S)
        except BrokerUnavailableError as error:
            raise BrokerUnavailableError(
                f"writing needs a running broker, and none answers for the lake {self.options.lake} ({error}). "
                f"Start one: kafkalake broker start --lake {self.options.lake}"
            ) from error

    def _addresses(self) -> Sequence[tuple[str, int]]:
        return self.options.servers or running_addresses(self.options.lake)


@hide_tracebacks
class KafkaLakeWriter(DataSourceArrowWriter):
    """A batch write. Its application is the user's or a unique id, with which task failures cause no duplicates."""

    def __init__(self, given: dict[str, str], schema: StructType, overwrite: bool) -> None:
        self._sink = Sink(given, schema, overwrite)
        self._directory = f"job-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._sink.stage(iterator, self._directory)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options: WriteOptions = self._sink.options
        self._sink.commit(options.application or self._directory, options.version, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._sink.abort(self._directory)


@hide_tracebacks
class KafkaLakeStreamWriter(DataSourceStreamArrowWriter):
    """The batches of a stream, each written once by query id and batch id, however often Spark repeats it."""

    def __init__(self, given: dict[str, str], schema: StructType, overwrite: bool) -> None:
        self._sink = Sink(given, schema, overwrite)
        if self._sink.options.application is not None:
            raise ConfigurationError("txnAppId is for batch writes; a stream is known by its checkpoint")

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
