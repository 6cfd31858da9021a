"""Topics for DuckDB, Polars, pandas and any other Arrow reader: no Spark, no JVM, no broker.

    clicks = topic_dataset("/data/lake", "clicks")
    duckdb.sql("SELECT partition, count(*) FROM clicks GROUP BY 1")     # finds the Python variable
    polars.scan_pyarrow_dataset(clicks).filter(pl.col("offset") > 100)

A topic with a `value.schema` has its fields as columns, and Kafka's as `_key`, `_offset` and so on:

    duckdb.sql("SELECT user, avg(ms) FROM clicks WHERE _timestamp > now() - INTERVAL 1 HOUR GROUP BY user")

What waits to be delivered later is a dataset, too: `delayed = delayed_dataset("/data/lake")`.

Both push their columns and filters into the topic: other columns are not read, and segments that cannot match
are not opened. Every query takes a new snapshot, up to the last acknowledged record. Segments are read a few
MiB at a time, whatever the size of the topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from kafkalake.config.topic_values import TopicValues
from kafkalake.errors import ConfigurationError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.paths import is_lake, lake_directory
from kafkalake.reader.bounds import begin_read
from kafkalake.reader.changed_values import evolved_avro
from kafkalake.reader.columns import KAFKA_SCHEMA, Projection, metadata_columns, project, projection_of
from kafkalake.reader.plan import SegmentSlice, check_losses, plan_slices
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read import Read
from kafkalake.reader.read_options import ReadOptions, parse_options
from kafkalake.reader.scanner import TopicScanner
from kafkalake.reader.slice_reader import SliceReader
from kafkalake.reader.topic_settings import values_of
from kafkalake.reader.value_types import value_arrow_schema
from kafkalake.timestamp_range import LATEST_TIMESTAMP_MS

_PRUNED_PIECES = 256
"""With a filter, a topic is cut into about this many pieces, which are pruned one by one."""
_NO_FILE, _NO_DISK = ds.IpcFileFormat(), LocalFileSystem()


def topic_dataset(
    lake: str | Path, topic: str, *, value_schema: pa.Schema | Mapping[str, pa.DataType] | None = None, **options: Any
) -> TopicDataset:
    """Return the topic (or several: `"a,b"`) as a pyarrow dataset that can be queried repeatedly.

    Columns are those of Spark's Kafka source: key, value (binary), topic, partition (int32), offset (int64), timestamp (us, UTC),
    timestampType (int32: 0 CreateTime, 1 LogAppendTime), headers. `value_schema` adds fields of JSON values. With None, a
    topic with a `value.schema` has its fields as columns, followed by Kafka's, whose names then begin with an underscore: `_key`,
    `_value`, `_topic`, `_partition`, `_offset`, `_timestamp`, `_timestampType`, `_headers`; several topics have Kafka's columns. A
    value or field that does not fit is null. `options` are Spark's, also in snake case: `starting_offsets`,
    `ending_timestamp`, `isolation`, `version_as_of`, ...

    Raise `ConfigurationError`. Queries raise `LakeError`, `UnknownTopicOrPartitionError`, `CorruptSegmentError`,
    and `RecordsLostError` for records lost in a power failure (`fail_on_data_loss=False` skips them).
    """
    given = {"lake": str(lake), "subscribe": topic, **{_option(name): _text(value) for name, value in options.items()}}
    if given.pop("subscribePattern", None) is not None:
        raise ConfigurationError("name the topics: a pattern is an option of Spark's source")
    options_of_read = parse_options(given)
    if value_schema is None and (typed := _values(options_of_read)).fields:
        columns = value_arrow_schema(typed.fields)
        metadata = metadata_columns(columns.names)
        options_of_read = replace(options_of_read, typed=typed)
        return TopicDataset(
            options_of_read,
            pa.schema([*columns, *(KAFKA_SCHEMA.field(source).with_name(name) for name, source in metadata.items())]),
        )
    fields = pa.schema(value_schema or {})
    taken = [
        field.with_name(f"value_{field.name}" if field.name in KAFKA_SCHEMA.names else field.name) for field in fields
    ]
    return TopicDataset(options_of_read, pa.schema([*KAFKA_SCHEMA, *taken]))


def _values(options: ReadOptions) -> TopicValues:
    path = Path(options.lake).absolute()
    return values_of(options, DeltaMetadataStore(path, create=False).load_topics()) if is_lake(path) else TopicValues()


def topic_reader(
    lake: str | Path,
    topic: str,
    columns: Sequence[str] | None = None,
    *,
    value_schema: pa.Schema | Mapping[str, pa.DataType] | None = None,
    **options: Any,
) -> pa.RecordBatchReader:
    """Return the topic's records as a stream of Arrow batches, by partition and offset, readable once.

    Only `columns` are read, in their order (None: all). Otherwise like `topic_dataset`.
    """
    return topic_dataset(lake, topic, value_schema=value_schema, **options).reader(columns)


def delayed_dataset(lake: str | Path, topic: str | None = None) -> DelayedDataset:
    """Return what waits to be delivered later as a pyarrow dataset that can be queried repeatedly.

    Columns: topic, partition (int32), due (us, UTC), key (binary), size (int64, of the value in bytes), delay_id; sent (us, UTC,
    the timestamp of the record), source, source_partition (where it was sent to, another topic for topics of a level),
    journal_partition and journal_offset (where it is in `__delayed`). topic: only what was sent to this one or will be delivered to
    it. Queries raise `LakeError`, `UnknownTopicOrPartitionError` and `CorruptSegmentError`.
    """
    from kafkalake.reader.delayed import DELAYED_SCHEMA

    return DelayedDataset(str(lake_directory(str(lake))), topic, DELAYED_SCHEMA)


class ScannedDataset(ds.FileSystemDataset):  # type: ignore[misc]
    """A `pyarrow.dataset.Dataset` whose scanners each read a new snapshot.

    Read with `scanner` (and what pyarrow builds on it: `to_table`, `to_batches`, `head`, `count_rows`) or
    `reader`. Operations that would bypass them raise an error.
    """

    def __init__(self, schema: pa.Schema) -> None:
        # pyarrow's base class gets one nonexistent file, so that operations that bypass `scanner` fail rather than find nothing.
        super().__init__([_NO_FILE.make_fragment(_AROUND, filesystem=_NO_DISK)], schema, _NO_FILE, _NO_DISK)
        self._whole_schema = schema

    @property
    def schema(self) -> pa.Schema:
        """The available columns."""
        return self._whole_schema

    def reader(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Return all rows with these columns (None: all), a few MiB at a time, readable once."""
        raise NotImplementedError

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export Arrow's PyCapsule interface: `polars.DataFrame(dataset)`, `pyarrow.table(dataset)`."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def get_fragments(self, filter: ds.Expression | None = None) -> Any:
        raise NotImplementedError(_AROUND)

    def replace_schema(self, schema: pa.Schema) -> Any:
        raise NotImplementedError(_AROUND)

    def filter(self, expression: ds.Expression) -> Any:
        raise NotImplementedError(_AROUND)

    def _columns(self, columns: Sequence[str] | None, also: ds.Expression | None = None) -> pa.Schema:
        """Return the schema of `columns` and of those that the expression mentions (or seems to: one too many is harmless)."""
        schema = self._whole_schema
        if columns is None:
            return schema
        unknown = [name for name in columns if name not in schema.names]
        if unknown:
            raise ConfigurationError(f"there is no column {unknown[0]!r} but {', '.join(schema.names)}")
        names = dict.fromkeys(columns)
        text = "" if also is None else str(also)
        names.update(dict.fromkeys(name for name in schema.names if name in text))
        return pa.schema([schema.field(name) for name in names])


class TopicDataset(ScannedDataset):
    """A topic's records, by partition and offset."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._options = options

    def reader(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        read, options = self._begin()
        groups = plan_slices(read, Selection(), cores=1)
        return self._stream(self._columns(columns), [piece for group in groups for piece in group], options)

    def scanner(
        self, columns: Sequence[str] | None = None, filter: ds.Expression | None = None, **settings: Any
    ) -> TopicScanner:
        """Return a scanner of a new snapshot. pyarrow applies `filter` to the records that cannot be pruned before reading.

        `settings` (batch sizes, threads) are accepted and ignored: batches are as stored in the segments.
        """
        needed = self._whole_schema if isinstance(columns, Mapping) else self._columns(columns, also=filter)
        cores = 1 if filter is None else _PRUNED_PIECES
        read, options = self._begin()
        groups = plan_slices(read, Selection(), cores, refuse_losses=False)
        pieces = [piece for group in groups for piece in group]
        if filter is not None:
            pieces = self._possible(pieces, filter)
        check_losses(pieces, self._options)
        return TopicScanner(self._stream(needed, pieces, options), columns, filter)

    def __reduce__(self) -> Any:
        return TopicDataset, (self._options, self._whole_schema)

    def _begin(self) -> tuple[Read, ReadOptions]:
        """Return a new snapshot, and the options with the values as they are read now. Raise the errors of `evolved_avro`."""
        options = self._options
        if options.typed is None:
            return begin_read(options), options
        tables = DeltaMetadataStore(Path(options.lake).absolute(), create=False)
        read = begin_read(options, tables)
        avro = evolved_avro(options, tables)
        return read, options if avro is None else replace(options, typed=replace(options.typed, avro=avro))

    def _stream(self, schema: pa.Schema, pieces: Sequence[SegmentSlice], options: ReadOptions) -> pa.RecordBatchReader:
        reader = SliceReader(self._project(schema, options), Selection())
        return pa.RecordBatchReader.from_batches(schema, reader.read(pieces))

    def _project(self, schema: pa.Schema, options: ReadOptions) -> Projection:
        if options.typed is not None:
            return projection_of(schema, options, None)
        return project(schema, json_values=len(self._whole_schema) > len(KAFKA_SCHEMA))

    def _possible(self, pieces: Sequence[SegmentSlice], expression: ds.Expression) -> list[SegmentSlice]:
        """Return the pieces that may match, as pyarrow infers from their topics, partitions, offsets and times."""
        columns = {
            source: name for name, source in self._project(self._whole_schema, self._options).kafka_columns.items()
        }
        fragments = [
            _NO_FILE.make_fragment(str(index), _NO_DISK, partition_expression=_guarantee(piece, columns))
            for index, piece in enumerate(pieces)
        ]
        whole = ds.FileSystemDataset(fragments, self._whole_schema, _NO_FILE, _NO_DISK)
        return [pieces[int(fragment.path)] for fragment in whole.get_fragments(filter=expression)]


class DelayedDataset(ScannedDataset):
    """The records that wait in a lake to be delivered later."""

    def __init__(self, lake: str, topic: str | None, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._lake = lake
        self._topic = topic

    def reader(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        # Imported here: it needs compiled code, which topics do not.
        from kafkalake.reader.delayed import delayed_records

        return delayed_records(Path(self._lake), self._columns(columns).names, topic=self._topic)

    def scanner(
        self, columns: Sequence[str] | None = None, filter: ds.Expression | None = None, **settings: Any
    ) -> TopicScanner:
        """Return a scanner of a new snapshot. `settings` are accepted and ignored."""
        needed = self._whole_schema if isinstance(columns, Mapping) else self._columns(columns, also=filter)
        return TopicScanner(self.reader(needed.names), columns, filter)

    def __reduce__(self) -> Any:
        return DelayedDataset, (self._lake, self._topic, self._whole_schema)


_AROUND = "this is read through `scanner`, `reader`, `to_table` or `to_batches`"


def _guarantee(piece: SegmentSlice, columns: Mapping[str, str]) -> ds.Expression:
    """Return an expression that is true of every record of a piece. columns: names of Kafka's columns, of those that are there."""
    known: list[ds.Expression] = []
    if "topic" in columns:
        known.append(ds.field(columns["topic"]) == piece.topic)
    if "partition" in columns:
        known.append(ds.field(columns["partition"]) == pa.scalar(piece.partition, pa.int32()))
    if "offset" in columns:
        offset = ds.field(columns["offset"])
        known += [offset >= piece.from_offset, offset < piece.to_offset]
    for bound, milliseconds in ((0, piece.min_timestamp_ms), (1, piece.max_timestamp_ms)):
        if "timestamp" in columns and milliseconds is not None and abs(milliseconds) < LATEST_TIMESTAMP_MS:
            timestamp = ds.field(columns["timestamp"])
            moment = pa.scalar(milliseconds * 1000, pa.timestamp("us", tz="UTC"))
            known.append(timestamp <= moment if bound else timestamp >= moment)
    return reduce(and_, known) if known else pc.scalar(True)


def _option(name: str) -> str:
    """Return `starting_offsets` in Spark's spelling."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
