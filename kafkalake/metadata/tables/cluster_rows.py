"""The rows of the table `cluster`: a `ClusterImage` in parts, each one file.

A row has a `kind` and the columns of that kind. A file lacks the other columns, which are null then. Partitions are in `BUCKETS`
parts by topic id, so that a change of one topic rewrites a sixteenth of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from kafkalake.cluster.image import (
    BrokerRegistration,
    ClusterImage,
    ConfigResource,
    ControllerRegistration,
    Endpoint,
    PartitionRegistration,
    ResourceKind,
)
from kafkalake.errors import LakeError

BUCKETS = 16
PARTITION_BY = ("kind", "bucket")
_PARTITIONS = "partition"
_IDS = pa.list_(pa.int32())
_ENDPOINT = pa.struct(
    {"listener": pa.string(), "host": pa.string(), "port": pa.int32(), "security_protocol": pa.string()}
)
_CONTROLLER = {
    "cluster_id": pa.string(),
    "controller_id": pa.int32(),
    "controller_epoch": pa.int32(),
    "topics_version": pa.int64(),
}
_BROKER = {
    "broker_id": pa.int32(),
    "broker_epoch": pa.int64(),
    "incarnation_id": pa.string(),
    "endpoints": pa.list_(_ENDPOINT),
    "rack": pa.string(),
    "machine": pa.string(),
    "boot_id": pa.string(),
    "is_fenced": pa.bool_(),
    "is_shutting_down": pa.bool_(),
    "is_voter": pa.bool_(),
}
_ONLY_CONTROLLER = {
    "controller_id": pa.int32(),
    "incarnation_id": pa.string(),
    "endpoints": pa.list_(_ENDPOINT),
}
_REGISTRATION = {
    "leader": pa.int32(),
    "leader_epoch": pa.int32(),
    "replicas": _IDS,
    "isr": _IDS,
    "offline": _IDS,
    "partition_epoch": pa.int32(),
    "elr": _IDS,
    "last_known_elr": _IDS,
    "adding": _IDS,
    "removing": _IDS,
    "is_recovering": pa.bool_(),
}
"""The attributes of a `PartitionRegistration`, in their order."""
_PARTITION = {"topic_id": pa.string(), "partition": pa.int32(), **_REGISTRATION}
_CONFIG = {"resource_kind": pa.string(), "resource_name": pa.string(), "name": pa.string(), "value": pa.string()}
_FEATURE = {"name": pa.string(), "level": pa.int32()}
_PRODUCER_IDS = {"next_producer_id": pa.int64()}

_PART = {"kind": pa.string(), "bucket": pa.int32()}
CLUSTER_SCHEMA = pa.schema({**_PART, **_CONTROLLER, **_BROKER, **_PARTITION, **_CONFIG, **_FEATURE, **_PRODUCER_IDS})
_NULLABLE = {"rack", "is_voter"}
_registration_values = attrgetter(*_REGISTRATION)

_Row = tuple[object, ...]


class Part(NamedTuple):
    """A part of the image. bucket: of its topic ids if it has partitions, else 0."""

    kind: str
    bucket: int = 0


@dataclass(frozen=True, slots=True)
class _Kind:
    """The columns of a kind, the rows of an image, and the attributes of an image that rows stand for, with their names."""

    columns: Mapping[str, pa.DataType]
    attributes: tuple[str, ...]
    rows_of: Callable[[ClusterImage], list[_Row]]
    attributes_of: Callable[[pa.Table], Mapping[str, object]]


def columns_of(kind: str) -> pa.Schema:
    """Return the columns of the rows of a kind. Raise `LakeError` if there is no such kind."""
    if kind == _PARTITIONS:
        return pa.schema({**_PART, **_PARTITION})
    if kind not in _KINDS:
        raise LakeError(f"the Delta table `cluster` has rows of an unknown kind, {kind!r}")
    return pa.schema({**_PART, **_KINDS[kind].columns})


def changed_parts(before: ClusterImage, after: ClusterImage) -> dict[Part, pa.Table]:
    """Return the parts in which two images differ, as rows of the second. A part that it does not have is empty."""
    found = {
        Part(name): _table(Part(name), rows)
        for name, kind in _KINDS.items()
        if any(getattr(before, each) is not getattr(after, each) for each in kind.attributes)
        and (rows := kind.rows_of(after)) != kind.rows_of(before)
    }
    changed: dict[int, list[_Row]] = {bucket: [] for bucket in _changed_buckets(before, after)}
    for topic_id, partitions in after.partitions.items() if changed else ():
        if (bucket := _bucket(topic_id)) in changed:
            text = str(topic_id)
            changed[bucket] += ((text, number, *_registration_values(each)) for number, each in enumerate(partitions))
    return found | {(part := Part(_PARTITIONS, bucket)): _table(part, rows) for bucket, rows in changed.items()}


def with_parts(image: ClusterImage, version: int, parts: Mapping[Part, pa.Table]) -> ClusterImage:
    """Return the image of a version in which only these parts have changed. Raise `LakeError` if their rows are invalid."""
    attributes: dict[str, object] = {}
    buckets = {}
    for part, rows in parts.items():
        _require_values(part, rows)
        if part.kind == _PARTITIONS:
            buckets[part.bucket] = _partitions_of(rows)
        else:
            attributes |= _KINDS[part.kind].attributes_of(rows)
    if buckets:
        partitions = {topic_id: each for topic_id, each in image.partitions.items() if _bucket(topic_id) not in buckets}
        for of_bucket in buckets.values():
            partitions |= of_bucket
        attributes["partitions"] = partitions
    return replace(image, version=version, **attributes)  # type: ignore[arg-type]


def _bucket(topic_id: UUID) -> int:
    return topic_id.int % BUCKETS


def _changed_buckets(before: ClusterImage, after: ClusterImage) -> set[int]:
    earlier, later = before.partitions, after.partitions
    if earlier is later:
        return set()
    changed = {_bucket(topic_id) for topic_id, each in later.items() if earlier.get(topic_id) != each}
    return changed | {_bucket(topic_id) for topic_id in earlier.keys() - later.keys()}


def _table(part: Part, rows: Sequence[_Row]) -> pa.Table:
    schema = columns_of(part.kind)
    columns = zip(*((*part, *row) for row in rows), strict=True) if rows else [()] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(values, column.type) for values, column in zip(columns, schema, strict=True)], schema=schema
    )


def _require_values(part: Part, rows: pa.Table) -> None:
    for name in columns_of(part.kind).names:
        if name not in _NULLABLE and rows.column(name).null_count:
            raise LakeError(f"the Delta table `cluster` has a row of the kind {part.kind!r} without {name}")


def _partitions_of(rows: pa.Table) -> dict[UUID, tuple[PartitionRegistration, ...]]:
    columns = [
        _tuples(rows.column(name)) if kind == _IDS else rows.column(name).to_pylist()
        for name, kind in _PARTITION.items()
    ]
    found: dict[str, dict[int, PartitionRegistration]] = {}
    for topic_id, number, *values in zip(*columns, strict=True):
        found.setdefault(topic_id, {})[number] = PartitionRegistration(*values)
    try:
        return {
            UUID(topic_id): tuple(partitions[number] for number in range(len(partitions)))
            for topic_id, partitions in found.items()
        }
    except (KeyError, ValueError) as error:
        raise LakeError(
            f"the Delta table `cluster` has a topic id that is none, or lacks a partition: {error}"
        ) from error


def _tuples(column: pa.ChunkedArray) -> list[tuple[int, ...]]:
    """Return lists as tuples, equal ones shared: thousands of partitions have the same replicas."""
    lists = column.combine_chunks()
    values = lists.values.to_pylist()
    if not values:
        return [()] * len(lists)
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    made = [tuple(values[start:end]) for start, end in pairwise(lists.offsets.to_pylist())]
    return [shared.setdefault(each, each) for each in made]


def _broker_rows(image: ClusterImage) -> list[_Row]:
    return [
        (
            broker.broker_id,
            broker.epoch,
            str(broker.incarnation_id),
            [asdict(endpoint) for endpoint in broker.endpoints],
            broker.rack,
            broker.machine,
            broker.boot_id,
            broker.is_fenced,
            broker.is_shutting_down,
            broker.is_voter,
        )
        for _, broker in sorted(image.brokers.items())
    ]


def _brokers_of(rows: pa.Table) -> dict[str, object]:
    brokers = {}
    for row in rows.select(list(_BROKER)).to_pylist():
        broker_id, epoch, incarnation_id, endpoints, *others, is_voter = row.values()
        try:
            registered = BrokerRegistration(broker_id, epoch, UUID(incarnation_id), _addresses(endpoints), *others)
            brokers[broker_id] = registered if is_voter is not False else replace(registered, is_voter=False)
        except ValueError as error:
            raise LakeError(f"the Delta table `cluster` has a broker of no incarnation: {error}") from error
    return {"brokers": brokers}


def _controller_rows(image: ClusterImage) -> list[_Row]:
    return [
        (node.controller_id, str(node.incarnation_id), [asdict(endpoint) for endpoint in node.endpoints])
        for _, node in sorted(image.controllers.items())
    ]


def _controllers_of(rows: pa.Table) -> dict[str, object]:
    controllers = {}
    for row in rows.select(list(_ONLY_CONTROLLER)).to_pylist():
        node_id, incarnation_id, endpoints = row.values()
        try:
            controllers[node_id] = ControllerRegistration(node_id, UUID(incarnation_id), _addresses(endpoints))
        except ValueError as error:
            raise LakeError(f"the Delta table `cluster` has a controller of no incarnation: {error}") from error
    return {"controllers": controllers}


def _addresses(endpoints: Sequence[Mapping[str, Any]]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(**each) for each in endpoints)


def _single(columns: Mapping[str, pa.DataType]) -> _Kind:
    """Return a kind of one row, whose columns are attributes of the image."""

    def attributes_of(rows: pa.Table) -> Mapping[str, object]:
        if rows.num_rows != 1:
            raise LakeError(f"the Delta table `cluster` has {rows.num_rows} rows with {next(iter(columns))}")
        found: Mapping[str, object] = rows.select(list(columns)).to_pylist()[0]
        return found

    return _Kind(
        columns, tuple(columns), lambda image: [tuple(getattr(image, name) for name in columns)], attributes_of
    )


def _mapping(attribute: str, columns: Mapping[str, pa.DataType]) -> _Kind:
    """Return a kind of one row for each item of a mapping in the image, with two columns, the key and the value."""

    def attributes_of(rows: pa.Table) -> Mapping[str, object]:
        return {attribute: dict(zip(*(rows.column(name).to_pylist() for name in columns), strict=True))}

    return _Kind(columns, (attribute,), lambda image: sorted(getattr(image, attribute).items()), attributes_of)


def _config_rows(image: ClusterImage) -> list[_Row]:
    return [
        (*resource, name, value)
        for resource, settings in sorted(image.config.items())
        for name, value in sorted(settings.items())
    ]


def _config_of(rows: pa.Table) -> dict[str, object]:
    found: dict[ConfigResource, dict[str, str]] = {}
    for kind, resource, name, value in zip(*(rows.column(each).to_pylist() for each in _CONFIG), strict=True):
        try:
            found.setdefault(ConfigResource(ResourceKind(kind), resource), {})[name] = value
        except ValueError as error:
            raise LakeError(f"the Delta table `cluster` has settings of an unknown kind: {error}") from error
    return {"config": found}


_KINDS = {
    "controller": _single(_CONTROLLER),
    "broker": _Kind(_BROKER, ("brokers",), _broker_rows, _brokers_of),
    "only_controller": _Kind(_ONLY_CONTROLLER, ("controllers",), _controller_rows, _controllers_of),
    "config": _Kind(_CONFIG, ("config",), _config_rows, _config_of),
    "feature": _mapping("features", _FEATURE),
    "producer_ids": _single(_PRODUCER_IDS),
}
