"""What a consumer of the classic protocol subscribes to, read from the metadata of its join.

The broker needs it for two things only: an offset of a topic that is being read neither expires nor may be deleted.
Source: ConsumerProtocolSubscription, all versions: int16 version, then an array (int32 count) of topic names.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalake.broker.coordination.fields import FieldReader, JournalFormatError

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics in all `subscriptions`; None where one cannot be read."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            reader = FieldReader(subscription)
            if reader.int16() < 0:
                return None
            topics.update(reader.string() for _ in range(reader.count()))
    except JournalFormatError:
        return None
    return frozenset(topics)
