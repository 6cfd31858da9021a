"""The client's side of an incremental fetch session with one broker (KIP-227).

The first request of a session names all partitions; later ones name those that are new or are wanted from elsewhere than before,
and those that are wanted no more. The broker answers with the partitions that have something new. Whenever the two sides may
disagree, as after a lost response, the next request is full again; and so is it if a topic has another id than before, or if topics
are named by ids from now on, or no longer (KIP-516).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from kafkalake.errors import FetchSessionIdNotFoundError
from kafkalake.topic_partition import TopicPartition

_INITIAL_EPOCH, _FINAL_EPOCH = 0, -1
_NO_SESSION = 0
_EPOCH_MAX = 2**31 - 1


class WantedPartition(NamedTuple):
    """One partition in a request, as `FetchPartition`."""

    fetch_offset: int
    current_leader_epoch: int
    partition_max_bytes: int
    last_fetched_epoch: int = -1


class SessionRequest(NamedTuple):
    """The part of a request that the session decides on. topic_ids: of all topics of the session, none if it has names."""

    session_id: int
    session_epoch: int
    partitions: Mapping[TopicPartition, WantedPartition]
    forgotten: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, UUID]


class FetchSession:
    """See the module. One request at a time: `request`, then `answered` or `failed`."""

    def __init__(self) -> None:
        self._session_id = _NO_SESSION
        self._epoch = _INITIAL_EPOCH
        self._partitions: dict[TopicPartition, WantedPartition] = {}
        self._topic_ids: dict[str, UUID] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions of the last request, named or not."""
        return frozenset(self._partitions)

    def request(
        self, wanted: Mapping[TopicPartition, WantedPartition], topic_ids: Mapping[str, UUID]
    ) -> SessionRequest:
        """Return the next request, for records of exactly these partitions. topic_ids: of all their topics, or of none."""
        before, self._partitions = self._partitions, dict(wanted)
        known = self._topic_ids
        if bool(known) != bool(topic_ids) or any(known.get(topic, each) != each for topic, each in topic_ids.items()):
            self._epoch, known = _INITIAL_EPOCH, {}
        self._topic_ids = {**known, **topic_ids}
        if self._epoch <= _INITIAL_EPOCH:
            return SessionRequest(self._session_id, self._epoch, self._partitions, (), self._topic_ids)
        # Partitions that are named come last in the session, so that the broker serves the others first.
        named = {each: how for each, how in self._partitions.items() if before.get(each) != how}
        forgotten = tuple(each for each in before if each not in self._partitions)
        return SessionRequest(self._session_id, self._epoch, named, forgotten, self._topic_ids)

    def answered(self, error_code: int, session_id: int) -> None:
        """Take the outcome of the request."""
        if error_code:
            if error_code == FetchSessionIdNotFoundError.code:
                self._session_id = _NO_SESSION
            self._epoch = _INITIAL_EPOCH
        elif session_id == _NO_SESSION:
            self._session_id, self._epoch = _NO_SESSION, _INITIAL_EPOCH
        else:
            self._session_id = session_id
            self._epoch = self._epoch + 1 if self._epoch < _EPOCH_MAX else 1

    def failed(self) -> None:
        """Begin anew, after a request without a response: the broker may or may not have seen it."""
        self._epoch = _INITIAL_EPOCH

    def final_request(self) -> SessionRequest | None:
        """Return the request that ends the session, None if there is none."""
        if self._session_id == _NO_SESSION:
            return None
        return SessionRequest(self._session_id, _FINAL_EPOCH, {}, (), {})
