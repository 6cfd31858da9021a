"""Checks of what applications give to clients: refused where it is given, since later it would end the network's work for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from operator import index
from typing import Annotated, TypeAlias

from kafkalake.client.records import NO_EPOCH, ConsumerGroupMetadata, OffsetAndMetadata
from kafkalake.config.setting import INT_MAX, LONG_MAX
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.consumer_protocol import NO_GENERATION

Header: TypeAlias = tuple[str | bytes, bytes | None]

_LONGEST_S = 365 * 24 * 60 * 60.0


def check_topic(topic: object) -> None:
    """Raise `TypeError` for a topic that is no text, `ValueError` for one without a name, or whose name has no bytes."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic is a str, not {type(topic).__name__}")
    if not topic.strip():
        raise ValueError("a topic needs a name")
    check_text(topic, "a topic is named")


def check_text(text: str, what: str) -> None:
    """Raise `ValueError` for a text with half of a surrogate pair, as Python makes of bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} in UTF-8, which {text!r} has no bytes in") from None


def checked_text(text: object, what: str) -> str:
    """Return a text that is sent. Raise `TypeError` for what is none, `ValueError` as `check_text` does."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is a str, not {type(text).__name__}")
    check_text(text, f"{what} is sent")
    return text


def checked_names(names: Iterable[str], what: str) -> list[str]:
    """Return several names. Raise `TypeError` for a single text, which would be its letters, and for what is no text."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise TypeError(f"{what} are several names, as ['a', 'b'], not {names!r}")
    found = list(names)
    for each in found:
        if not isinstance(each, str):
            raise TypeError(f"{what} are named by str, not {type(each).__name__}")
    return found


def checked_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return partitions as tuples. Raise `TypeError` for what is no (topic, number), `ValueError` for a number below 0."""
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise TypeError(f"partitions are several of (topic, number), not {type(partitions).__name__}")
    return [checked_partition(each) for each in partitions]


def checked_partition(partition: object) -> TopicPartition:
    """Return a partition. Raise as `checked_partitions` does."""
    if not isinstance(partition, tuple) or len(partition) != 2:
        raise TypeError(f"a partition is a tuple (topic, number), not {partition!r}")
    topic, number = partition
    check_topic(topic)
    return topic, checked_number(number, "the number of a partition", INT_MAX)


def checked_number(number: object, what: str, largest: int | None = None) -> int:
    """Return a whole number. Raise `TypeError` for what is none, `ValueError` for one below 0 or above `largest`."""
    try:
        found = index(number)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} is an int, not {type(number).__name__}") from None
    if found < 0:
        raise ValueError(f"{what} is at least 0, not {found}")
    if largest is not None and found > largest:
        raise ValueError(f"{what} is at most {largest}, not {found}")
    return found


def checked_numbers(numbers: Mapping[TopicPartition, int], what: str) -> dict[TopicPartition, int]:
    """Return a number for each partition. Raise as `checked_partitions` and `checked_number` do."""
    check_mapping(numbers)
    return {
        checked_partition(partition): checked_number(number, what, LONG_MAX) for partition, number in numbers.items()
    }


def checked_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets to commit with their metadata. Raise as `checked_partitions`, `checked_number`, `checked_text` do."""
    check_mapping(offsets)
    found = {}
    for partition, given in offsets.items():
        each = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        checked_number(each.offset, "an offset", LONG_MAX)
        if each.leader_epoch not in (None, NO_EPOCH):
            checked_number(each.leader_epoch, "a leader epoch", INT_MAX)
        checked_text(each.metadata or "", "the metadata of an offset")
        found[checked_partition(partition)] = each
    return found


def check_mapping(given: object) -> None:
    """Raise `TypeError` for what is no dictionary."""
    if not isinstance(given, Mapping):
        raise TypeError(f"a dictionary by (topic, number) is needed, not {type(given).__name__}")


def checked_group(group: ConsumerGroupMetadata | str) -> ConsumerGroupMetadata:
    """Return a group, without a member for its name. Raise `TypeError` for what is none, `ValueError` for an empty name."""
    found = ConsumerGroupMetadata(group) if isinstance(group, str) else group
    if not isinstance(found, ConsumerGroupMetadata):
        raise TypeError(f"a group is its name or the group_metadata of a consumer, not {type(group).__name__}")
    if not checked_text(found.group_id, "the name of a group"):
        raise ValueError("a group needs a name")
    checked_text(found.member_id, "the id of a member")
    checked_text(found.group_instance_id or "", "a group.instance.id")
    if found.generation_id != NO_GENERATION:
        checked_number(found.generation_id, "the generation of a group", INT_MAX)
    return found


def checked_timestamp(timestamp: object) -> int:
    """Return a record's timestamp. Raise `TypeError`, `ValueError` for what is no number of milliseconds since 1970."""
    found = checked_number(timestamp, "a timestamp in milliseconds since 1970")
    if found > LONG_MAX:
        raise ValueError(f"a timestamp has 64 bits: {found} does not fit")
    return found


def checked_headers(headers: Sequence[Header]) -> tuple[Header, ...]:
    """Return a copy of headers. Raise `TypeError` for what is no sequence of (str or bytes, bytes or None).

    Raise `ValueError` for a key that has no bytes.
    """
    found = tuple(headers)
    for each in found:
        if not isinstance(each, tuple | list) or len(each) != 2:
            raise TypeError(f"headers are pairs (key, value), as [('key', b'value')], not {each!r}")
        key, value = each
        if not isinstance(key, str | bytes):
            raise TypeError(f"the key of a header is a str, not {type(key).__name__}")
        if isinstance(key, str):
            check_text(key, "the key of a header is sent")
        if value is not None and not isinstance(value, bytes):
            raise TypeError(f"the value of header {key!r} is bytes or None, not {type(value).__name__}")
    return found


def check_part(name: str, part: object, *methods: str) -> None:
    """Raise `TypeError` if a part that a client is given, as a serializer, lacks a method. None: there is no part."""
    for method in methods if part is not None else ():
        if isinstance(part, type) or not callable(getattr(part, method, None)):
            raise TypeError(f"{name}: {part!r} is no object with a method `{method}`")


def checked_seconds(seconds: object, what: str) -> float:
    """Return a time to wait. Raise `TypeError` for what is no number, `ValueError` for one below 0 and for NaN."""
    if not isinstance(seconds, Real):
        raise TypeError(f"{what} is a number of seconds, not {type(seconds).__name__}")
    found = float(seconds)
    if not found >= 0:
        raise ValueError(f"{what} is at least 0 seconds, not {found:g}")
    return min(found, _LONGEST_S)


def checked_broker(broker_id: object, what: str) -> int:
    """Return the id of a broker. Raise as `checked_number` does."""
    return checked_number(broker_id, what)


def checked_broker_name(name: str) -> int:
    """Return the id of a broker that is named by it, as resources are. Raise `ValueError` for another name."""
    if not (name.isascii() and name.isdecimal()):
        raise ValueError(f"a broker is named by its id, as '0', not {name!r}")
    return int(name)


Seconds: TypeAlias = Annotated[float, checked_seconds]
"""A time to wait, from 0 to infinite."""
BrokerId: TypeAlias = Annotated[int, checked_broker]
"""The id of a broker, not of an address to begin with, which has one below 0."""
