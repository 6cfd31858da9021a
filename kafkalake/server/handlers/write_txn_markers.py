"""WriteTxnMarkers (27), version 1: end transactions in partitions. For brokers and administrators.

Answered when the markers are in the logs. A marker in `__consumer_offsets` also ends the transaction for groups' offsets.
Own fields tell coordinators which records each marker has ended.
*Different from Kafka:* an epoch that no coordinator has yet, as far as this broker follows the image, is refused with
COORDINATOR_NOT_AVAILABLE, and a coordinator sends the marker again. A log that takes it would refuse all real ones.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.transactions.decisions import Marker, MarkerResult
from kafkalake.errors import ClusterAuthorizationError, CoordinatorNotAvailableError, KafkaError
from kafkalake.internal_topics import TRANSACTION_JOURNAL
from kafkalake.offset_range import OffsetRange
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.group_lookup import code_of
from kafkalake.server.request import Request
from kafkalake.wire.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(request: Request[WriteTxnMarkersRequest]) -> Generator[None, None, None]:
    if request.allows(Resource.CLUSTER, CLUSTER_NAME):
        yield from _Markers(request).start(None)
    else:
        yield from _Markers(request).start(ClusterAuthorizationError)


class _Markers:
    """Replies when each marker is written or refused."""

    def __init__(self, request: Request[WriteTxnMarkersRequest]) -> None:
        self._request = request
        self._asked = request.body.markers
        self._left = 0
        self._results: dict[tuple[int, str, int], MarkerResult] = {}

    def start(self, refusal: ErrorClass | None) -> Generator[None, None, None]:
        keys = yield from self._keys()
        self._left = len(keys)
        if not self._left:
            self._reply()
        broker = self._request.context.broker
        newest_epoch = _newest_epoch(broker.topics)
        found: dict[tuple[int, str, int], tuple[Partition, Marker]] = {}
        for key in keys:
            yield
            number, name, index = key
            asked = self._asked[number]
            try:
                if refusal is not None:
                    raise refusal()
                if asked.coordinator_epoch > newest_epoch:
                    raise CoordinatorNotAvailableError()
                marker = Marker(asked.producer_id, asked.producer_epoch, asked.transaction_result)
                found[key] = broker.topics.leader(name, index), marker
            except KafkaError as error:
                self._written(key, type(error))
        for key, (partition, marker) in found.items():
            written = self._request.guarded(partial(self._written, key))
            epoch = self._asked[key[0]].coordinator_epoch
            broker.transactions.markers.write(partition, marker, epoch, written)
            yield

    def _keys(self) -> Generator[None, None, dict[tuple[int, str, int], None]]:
        """Return the distinct (number of the marker, topic, partition)."""
        keys: dict[tuple[int, str, int], None] = {}
        for number, asked in enumerate(self._asked):
            for topic in asked.topics:
                keys.update(((number, topic.name, index), None) for index in topic.partition_indexes)
                yield
        return keys

    def _written(self, key: tuple[int, str, int], result: MarkerResult) -> None:
        self._results[key] = result
        self._left -= 1
        if not self._left:
            self._reply()

    def _reply(self) -> None:
        self._request.work(self._answer())

    def _answer(self) -> Generator[None, None, WriteTxnMarkersResponse]:
        markers: list[WritableTxnMarkerResult] = []
        for number, asked in enumerate(self._asked):
            markers.append(WritableTxnMarkerResult(producer_id=asked.producer_id, topics=(topics := [])))
            for topic in asked.topics:
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=(partitions := [])))
                for index in topic.partition_indexes:
                    partitions.append(_result_of(index, self._results[number, topic.name, index]))
                    yield
                yield
            yield
        return WriteTxnMarkersResponse(markers=markers)


def _result_of(index: int, result: MarkerResult) -> WritableTxnMarkerPartitionResult:
    if isinstance(result, OffsetRange):
        first, last = result
        return WritableTxnMarkerPartitionResult(partition_index=index, first_offset=first, last_offset=last)
    return WritableTxnMarkerPartitionResult(partition_index=index, error_code=code_of(result))


def _newest_epoch(topics: Topics) -> int:
    """Return the newest epoch of a coordinator, that of the leader of its partition of the journal."""
    journal = topics.find(TRANSACTION_JOURNAL)
    return max((each.leader_epoch for each in journal.registrations), default=0) if journal is not None else 0
