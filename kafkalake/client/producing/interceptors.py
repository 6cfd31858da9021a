"""Interceptors of a producer: they see, and may replace, each record before it is sent, and see what became of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kafkalake.client.application_calls import call_application
from kafkalake.client.arguments import Header, check_part
from kafkalake.client.records import RecordMetadata
from kafkalake.errors import KafkaLakeError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record as it was given to `send`. timestamp: ms since 1970, None for now."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    headers: Sequence[Header] = ()
    timestamp: int | None = None


class ProducerInterceptor(Protocol):
    """See the module. One that raises is logged, and the others go on with the record that it got."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to be sent. Called by the thread that sends."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaLakeError | None) -> None:
        """Take the news that a record was delivered, or why it was not. Called by the sender's thread."""
        ...


def _record(found: object) -> ProducerRecord:
    if not isinstance(found, ProducerRecord):
        raise TypeError(f"on_send returned {type(found).__name__}, not a record")
    return found


class Interceptors:
    """A chain of interceptors."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)
        for each in self._interceptors:
            check_part("interceptors", each, "on_send", "on_acknowledgement")

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record that the last interceptor returns."""
        for each in self._interceptors:
            try:
                record = _record(each.on_send(record))
            except Exception:
                logger.exception("interceptor %s failed in on_send", type(each).__name__)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaLakeError | None) -> None:
        """Tell all interceptors."""
        for each in self._interceptors:
            call_application(
                partial(each.on_acknowledgement, metadata, error),
                f"on_acknowledgement of interceptor {type(each).__name__}",
            )
