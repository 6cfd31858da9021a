"""The driver's part of a write: what it is before its tasks run, the one request that appends what they staged, and its end.

Independent of Spark: the Python source's writers and the planning process call the same functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafkalake.client.staged_append import DESCRIBE_TIMEOUT_S, OutcomeUnknownError, ask_once, ask_until
from kafkalake.errors import BrokerUnavailableError, ConfigurationError, KafkaLakeError
from kafkalake.metadata.identity import known_cluster_id
from kafkalake.metadata.paths import require_lake
from kafkalake.reader.lake_broker import located, running_addresses
from kafkalake.spark.sink.write_options import WriteOptions, parse_write_options
from kafkalake.spark.sink.write_target import Target, check_columns, check_fields
from kafkalake.storage.staging import ASKED_FILE, remove_directory, staging_path

TopicIds = Sequence[tuple[str, str]]
"""(name, id) of topics, in the order of their numbers."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write that may begin. cluster_id: that of its lake. staged_bytes_max: the limit of the bytes that it may stage."""

    options: WriteOptions
    cluster_id: str | None
    targets: Mapping[str, Target]
    topic_ids: TopicIds
    staged_bytes_max: int


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """The files that tasks have staged. partitions: (number of the topic, partition). files: (name, bytes, batches, records)."""

    cluster_id: str | None
    application: str
    version: int
    directory: str
    topic_ids: TopicIds
    partitions: Sequence[tuple[int, int]]
    files: Sequence[tuple[str, int, int, int]]


def begin_write(given: Mapping[str, str], schema: pa.Schema, *, is_stream: bool, is_overwriting: bool) -> Write:
    """Validate the options and the columns, and ask the broker for the topics' properties. Nothing is written yet.

    Raise `ConfigurationError`, `BrokerUnavailableError` or `KafkaError`.
    """
    if is_overwriting:
        raise ConfigurationError('a topic cannot be overwritten, only added to: use mode("append") or INSERT INTO')
    options = parse_write_options(located(given))
    if is_stream and options.application is not None:
        raise ConfigurationError("txnAppId is for batch writes; a stream is known by its checkpoint")
    if options.typed is not None:
        check_fields(schema, options.typed.avro)
    else:
        check_columns(schema, options.topic, options.json_fields)
    cluster_id = known_cluster_id(require_lake(options.lake))
    answer = _describe(options, cluster_id)
    targets = (
        Target(topic["name"], number, topic["partitions"], topic["message_bytes_max"], topic["key_required"])
        for number, topic in enumerate(answer["topics"])
    )
    return Write(
        options,
        cluster_id,
        {target.name: target for target in targets},
        [(topic["name"], topic["id"]) for topic in answer["topics"]],
        answer["bytes_max"],
    )


def commit_write(options: WriteOptions, staged: StagedWrite) -> None:
    """Ask the broker to append all staged records, once, however often this is called.

    Raise `KafkaLakeError` if they are not appended or this is unknown.
    """
    directory = staging_path(options.lake) / staged.directory
    body = {
        "ask": "append",
        "cluster_id": staged.cluster_id,
        "application": staged.application,
        "version": staged.version,
        "is_named": options.application is not None,
        "directory": staged.directory,
        "topics": staged.topic_ids,
        "partitions": sorted(staged.partitions),
        "files": staged.files,
    }
    asked = directory / ASKED_FILE
    with contextlib.suppress(FileNotFoundError):  # an earlier call has been answered
        asked.touch()
    try:
        ask_until(lambda: _addresses(options), body, options.commit_timeout_s)
    except OutcomeUnknownError as error:
        raise KafkaLakeError(
            f"it is not known whether the records were appended, {error}; they are all there or none is. "
            "A write with txnAppId and txnVersion may simply be repeated"
        ) from error
    except KafkaLakeError:
        asked.unlink(missing_ok=True)
        raise
    remove_directory(directory)


def was_asked(lake: Path, directory: str) -> bool:
    """Return whether the broker may have been asked to append what is staged in a directory: a note says so, or it is gone."""
    path = staging_path(lake) / directory
    return (path / ASKED_FILE).exists() or not path.exists()


def abort_write(lake: Path, directory: str) -> None:
    """Remove what a failed write staged, unless the broker may still be reading it."""
    path = staging_path(lake) / directory
    if not (path / ASKED_FILE).exists():
        remove_directory(path)


def _describe(options: WriteOptions, cluster_id: str | None) -> dict[str, Any]:
    wanted = None if options.topic is None else [options.topic]
    try:
        question = {"ask": "describe", "topics": wanted, "cluster_id": cluster_id}
        return ask_once(_addresses(options), question, DESCRIBE_TIMEOUT_S)
    except BrokerUnavailableError as error:
        raise BrokerUnavailableError(
            f"writing needs a running broker, and none answers for the lake {options.lake} ({error}). "
            f"Start one: kafkalake broker start --lake {options.lake}"
        ) from error


def _addresses(options: WriteOptions) -> Sequence[tuple[str, int]]:
    return options.servers or running_addresses(options.lake)
