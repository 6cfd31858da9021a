"""The JSON files of reassignments and elections, as `kafka-reassign-partitions` and `kafka-leader-election` read and write them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from kafkalake.cli.output import Failure
from kafkalake.topic_partition import TopicPartition, partition_name

VERSION = 1
ANY_DIRECTORY = "any"

Item = TypeVar("Item", bound=Hashable)
_Fields = dict[str, object]


def read_topics(path: Path) -> list[str]:
    """Return the topics of `{"topics": [{"topic": "t"}], "version": 1}`. Raise `Failure` for another file, a topic named twice."""
    topics = [_text(path, each, "topic") for each in _items(path, "topics")]
    _refuse_repeated(path, topics)
    return topics


def read_partitions(path: Path) -> list[TopicPartition]:
    """Return the partitions of `{"partitions": [{"topic": "t", "partition": 0}]}`. Raise `Failure` as `read_assignment`."""
    partitions = [_partition(path, each) for each in _items(path, "partitions")]
    _refuse_repeated(path, [partition_name(each) for each in partitions])
    return partitions


def read_assignment(path: Path) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas by partition of `{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}`.

    Raise `Failure` if the file is another one, or names a partition or a replica of one twice, or directories.
    """
    items = _items(path, "partitions")
    _refuse_repeated(path, [partition_name(_partition(path, each)) for each in items])
    return {_partition(path, each): _replicas(path, each) for each in items}


def assignment_text(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return an assignment as `read_assignment` and Kafka's tool read it."""
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "replicas": list(replicas),
            "log_dirs": [ANY_DIRECTORY] * len(replicas),
        }
        for (topic, index), replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def _items(path: Path, name: str) -> list[_Fields]:
    """Return the objects in the list `name` of a file, `-`: of stdin. Raise `Failure` if there is no such list, or it is empty."""
    try:
        document = json.loads(_text_of(path))
    except ValueError as error:
        raise Failure(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Failure(f"{path} holds no JSON object")
    if document.get("version", VERSION) != VERSION:
        raise Failure(f"{path} is of version {document['version']}; {VERSION} is known")
    items = document.get(name)
    if not isinstance(items, list) or not items or not all(isinstance(each, dict) for each in items):
        raise Failure(f'{path} has no list "{name}" of objects')
    return items


def _text_of(path: Path) -> str:
    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise Failure(f"{path} is not UTF-8") from None


def _partition(path: Path, fields: _Fields) -> TopicPartition:
    return _text(path, fields, "topic"), _number(path, fields.get("partition"), "partition")


def _replicas(path: Path, fields: _Fields) -> tuple[int, ...]:
    name, replicas = partition_name(_partition(path, fields)), _numbers(path, fields, "replicas")
    _refuse_repeated(path, replicas, f" among the replicas of {name}")
    directories = fields.get("log_dirs", [])
    if not isinstance(directories, list) or any(each != ANY_DIRECTORY for each in directories):
        raise Failure(f"{path}: log_dirs of {name}: replicas are not moved between directories")
    return replicas


def _text(path: Path, fields: _Fields, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise Failure(f'{path}: "{name}" is text, not {json.dumps(value)}')
    return value


def _number(path: Path, value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Failure(f'{path}: "{name}" is a number from 0 on, not {json.dumps(value)}')
    return value


def _numbers(path: Path, fields: _Fields, name: str) -> tuple[int, ...]:
    values = fields.get(name)
    if not isinstance(values, list) or not values:
        raise Failure(f'{path}: "{name}" is a list of broker ids, not {json.dumps(values)}')
    return tuple(_number(path, each, name) for each in values)


def _refuse_repeated(path: Path, items: Iterable[Item], where: str = "") -> None:
    twice = [item for item, count in Counter(items).items() if count > 1]
    if twice:
        raise Failure(f"{path} names {twice[0]} twice{where}")
