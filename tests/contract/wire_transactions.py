"""A transactional producer that sends exactly the requests it is told, as older clients do or as those of transactions version 2.

Answers are Kafka's error codes. What a real client would try again (a step is under way, the coordinator is still loading) is
tried again here too, for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contract.wire_client import WireClient, batch, code

NONE = 0
UNSTABLE_OFFSET_COMMIT = 88
TRANSACTIONAL = 0x10
RETRIED = {14, 15, 16, 51, 19}
"""Coordinator loading, not available, not here; a transaction's step under way; and what older clients are told of that."""
PATIENCE_S = 30.0

PRODUCE_VERSION = {False: 11, True: 12}
OFFSETS_VERSION = {False: 4, True: 5}
END_VERSION = {False: 4, True: 5}


def patiently(ask: Callable[[], Any], of: Callable[[Any], int]) -> Any:
    """The answer, once it is none that a client waits out."""
    deadline = time.monotonic() + PATIENCE_S
    while of(answer := ask()) in RETRIED and time.monotonic() < deadline:
        time.sleep(0.02)
    return answer


def find_coordinator(client: WireClient, key: str, key_type: int) -> None:
    """Look for a coordinator until there is one, which creates its journal."""
    patiently(
        lambda: client.call("FindCoordinator", 4, key_type=key_type, coordinator_keys=[key]),
        lambda answer: code(answer.coordinators[0].error_code),
    )


class TransactionalClient:
    """One transactional id. `version_2`: transactions version 2 (KIP-890)."""

    def __init__(self, client: WireClient, transactional_id: str, *, version_2: bool) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.version_2 = version_2
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, timeout_ms: int = 60_000, *, version: int = 5, producer_id: int = -1, epoch: int = -1) -> int:
        find_coordinator(self.client, self.transactional_id, 1)
        answer = patiently(
            lambda: self.client.call(
                "InitProducerId",
                version,
                transactional_id=self.transactional_id,
                transaction_timeout=timeout_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
            ),
            lambda answer: code(answer.error_code),
        )
        if code(answer.error_code) == NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return code(answer.error_code)

    def add(self, topic: str, partitions: Sequence[int], *, version: int = 3) -> list[int]:
        """AddPartitionsToTxn; an error for each partition."""
        answer = patiently(
            lambda: self.client.call(
                "AddPartitionsToTxn",
                version,
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
            ),
            lambda answer: max(_codes(answer.results_by_topic_v3_and_below).values()),
        )
        errors = _codes(answer.results_by_topic_v3_and_below)
        return [errors[index] for index in partitions]

    def produce(self, topic: str, values: Sequence[bytes], *, partition: int = 0, version: int | None = None) -> int:
        """One transactional batch."""
        sequence = self.sequences.get((topic, partition), 0)
        records = batch(
            [(None, value) for value in values],
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=sequence,
        )
        answer = patiently(
            lambda: self.client.call(
                "Produce",
                PRODUCE_VERSION[self.version_2] if version is None else version,
                transactional_id=self.transactional_id,
                acks=-1,
                timeout=10_000,
                topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
            ),
            lambda answer: code(answer.responses[0].partition_responses[0].error_code),
        )
        error = code(answer.responses[0].partition_responses[0].error_code)
        if error == NONE:
            self.sequences[topic, partition] = sequence + len(values)
        return error

    def write(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> None:
        """Write to partitions as a client of this kind does: an older one adds them first."""
        if not self.version_2:
            assert set(self.add(topic, list(values))) == {NONE}
        for partition, each in values.items():
            assert self.produce(topic, each, partition=partition) == NONE

    def add_offsets(self, group: str, *, version: int = 3) -> int:
        answer = patiently(
            lambda: self.client.call("AddOffsetsToTxn", version, **self._who(), group_id=group),
            lambda answer: code(answer.error_code),
        )
        return code(answer.error_code)

    def commit_offsets(
        self, group: str, topic: str, offsets: Mapping[int, int], *, version: int | None = None, **member: Any
    ) -> list[int]:
        """TxnOffsetCommit; an error for each partition. `member`: generation_id, member_id, group_instance_id."""
        find_coordinator(self.client, group, 0)
        partitions = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
            for index, offset in offsets.items()
        ]
        answer = patiently(
            lambda: self.client.call(
                "TxnOffsetCommit",
                OFFSETS_VERSION[self.version_2] if version is None else version,
                **self._who(),
                group_id=group,
                generation_id=member.get("generation_id", -1),
                member_id=member.get("member_id", ""),
                group_instance_id=member.get("group_instance_id"),
                topics=[{"name": topic, "partitions": partitions}],
            ),
            lambda answer: max(code(each.error_code) for each in answer.topics[0].partitions),
        )
        errors = {each.partition_index: code(each.error_code) for each in answer.topics[0].partitions}
        return [errors[index] for index in offsets]

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets as a client of this kind does: an older one adds the group first."""
        if not self.version_2:
            assert self.add_offsets(group) == NONE
        assert set(self.commit_offsets(group, topic, offsets)) == {NONE}

    def end(self, *, committed: bool, version: int | None = None) -> int:
        answer = patiently(
            lambda: self.client.call(
                "EndTxn",
                END_VERSION[self.version_2] if version is None else version,
                **self._who(),
                committed=committed,
            ),
            lambda answer: code(answer.error_code),
        )
        if code(answer.error_code) == NONE and self.version_2:
            if answer.producer_epoch != self.epoch:
                self.sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return code(answer.error_code)

    def _who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }


def _codes(topics: Any) -> dict[int, int]:
    """Partition -> error of the one topic. Apache Kafka answers in an order that differs from one JVM to the next."""
    (topic,) = topics
    return {each.partition_index: code(each.partition_error_code) for each in topic.results_by_partition}


def end_offsets(client: WireClient, topic: str, partitions: int, *, read_committed: bool) -> list[int]:
    """The high watermark of each partition, or its last stable offset."""
    asked = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
    answer = client.call(
        "ListOffsets",
        6,
        replica_id=-1,
        isolation_level=1 if read_committed else 0,
        topics=[{"name": topic, "partitions": asked}],
    )
    offsets = {each.partition_index: each.offset for each in answer.topics[0].partitions}
    return [offsets[index] for index in range(partitions)]


def committed_offset(client: WireClient, group: str, topic: str, *, require_stable: bool) -> int | str:
    """A group's committed offset of partition 0 (-1: none), or "unstable"."""
    asked = [{"name": topic, "partition_indexes": [0]}]
    answer = client.call("OffsetFetch", 7, group_id=group, topics=asked, require_stable=require_stable)
    (found,) = answer.topics[0].partitions
    if code(found.error_code) == UNSTABLE_OFFSET_COMMIT:
        return "unstable"
    assert code(found.error_code) == NONE
    return int(found.committed_offset)


def state_of(client: WireClient, transactional_id: str) -> str:
    """The state of a transactional id, or the error's number."""
    (found,) = client.call("DescribeTransactions", 0, transactional_ids=[transactional_id]).transaction_states
    return str(found.transaction_state) if code(found.error_code) == NONE else str(code(found.error_code))
