"""Commits that are wrong: Kafka's error, and the group's offsets as they were; inside and outside of transactions."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest
from contract.test_groups_contract import UNKNOWN_MEMBER, commit, enter, fetch, group
from contract.wire_client import WireClient, code, create_topic
from waiting import wait_until

__all__ = ["group"]

UNKNOWN_TOPIC_OR_PARTITION, METADATA_TOO_LARGE, ILLEGAL_GENERATION, INVALID_GROUP_ID = 3, 12, 22, 24
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED = 47, 48, 49, 90
COORDINATOR_LOADS, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
CONCURRENT_TRANSACTIONS, INVALID_REQUEST = 51, 42
METADATA_BYTES_MAX = 4_096


def one(index: int = 0, offset: int = 99, metadata: str | None = "other") -> list[dict[str, Any]]:
    return [{"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}]


WRONG_PARTITIONS = [
    ("a negative partition", {}, one(-1), UNKNOWN_TOPIC_OR_PARTITION),
    ("a partition beyond the last", {}, one(2), UNKNOWN_TOPIC_OR_PARTITION),
    ("long metadata", {}, one(metadata="x" * (METADATA_BYTES_MAX + 1)), METADATA_TOO_LARGE),
    *(
        (f"topic {name[:5]!r}", {"name": name}, one(), UNKNOWN_TOPIC_OR_PARTITION)
        for name in ("none", "", ".", "a/b", "x" * 300, "ü")
    ),
]


def refused(client: WireClient, group: str, topic: str, change: dict[str, Any], partitions: Any, **values: Any) -> int:
    """The error of an OffsetCommit of one partition."""
    asked = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic, "partitions": partitions, **change}],
        **values,
    }
    return code(client.call("OffsetCommit", 8, **asked).topics[0].partitions[0].error_code)


def groups(client: WireClient) -> set[str]:
    return {each.group_id for each in client.call("ListGroups", 4, states_filter=[]).groups}


@pytest.mark.parametrize(("change", "partitions", "error"), [case[1:] for case in WRONG_PARTITIONS])
def test_a_commit_to_what_is_not_there_changes_nothing(
    client: WireClient, group: str, topic: str, change: dict[str, Any], partitions: Any, error: int
) -> None:
    create_topic(client, topic, 2)
    commit(client, group, topic)
    assert refused(client, group, topic, change, partitions) == error
    assert fetch(client, group, topic, [0, 1]) == [(5, "note"), (-1, "")]
    assert refused(client, group + "-new", topic, change, partitions) == error
    assert group + "-new" not in groups(client)


def test_the_longest_metadata_and_none_at_all_are_kept(client: WireClient, group: str, topic: str) -> None:
    create_topic(client, topic, 2)
    assert refused(client, group, topic, {}, one(metadata="ü" * METADATA_BYTES_MAX)) == 0
    assert refused(client, group, topic, {}, one(1, metadata=None)) == 0
    assert fetch(client, group, topic, [0, 1]) == [(99, "ü" * METADATA_BYTES_MAX), (99, "")]


def test_apache_kafka_keeps_negative_offsets_and_so_do_we(client: WireClient, group: str, topic: str) -> None:
    """Clients refuse them; a broker says what it was told."""
    create_topic(client, topic, 1)
    assert refused(client, group, topic, {}, one(offset=-5)) == 0
    assert fetch(client, group, topic, [0]) == [(-5, "other")]


def test_only_the_members_of_a_group_commit_for_it(client: WireClient, group: str, topic: str) -> None:
    create_topic(client, topic, 1)
    commit(client, group, topic)
    member = enter(client, group)
    for generation, member_id, error in (
        (-1, "", UNKNOWN_MEMBER),
        (0, "", UNKNOWN_MEMBER),
        (1, "", UNKNOWN_MEMBER),
        (1, "nobody", UNKNOWN_MEMBER),
        (2, member.member_id, ILLEGAL_GENERATION),
        (-1, member.member_id, ILLEGAL_GENERATION),
    ):
        values = {"generation_id_or_member_epoch": generation, "member_id": member_id}
        assert refused(client, group, topic, {}, one(), **values) == error, values
    assert fetch(client, group, topic, [0]) == [(5, "note")]


@dataclass
class Transaction:
    """An open transaction of a transactional id of its own, with the group's offsets added to it."""

    client: WireClient
    group: str
    topic: str
    transactional_id: str = field(default_factory=lambda: f"id-{uuid.uuid4().hex[:10]}")
    producer_id: int = -1
    epoch: int = -1

    def begin(self) -> None:
        def init() -> bool:
            answer = self.client.call(
                "InitProducerId", 3, transactional_id=self.transactional_id, transaction_timeout=60_000
            )
            self.producer_id, self.epoch = int(answer.producer_id), int(answer.producer_epoch)
            return code(answer.error_code) not in (COORDINATOR_LOADS, NOT_AVAILABLE, NOT_COORDINATOR)

        wait_until(init)

    def add_group(self, group: str | None = None, **change: Any) -> int:
        return code(
            self.client.call("AddOffsetsToTxn", 3, **self._identity(change), group_id=group or self.group).error_code
        )

    def commit_offset(self, partitions: Any = None, **change: Any) -> int:
        asked = {
            "group_id": self.group,
            "generation_id": -1,
            "member_id": "",
            **self._identity(change),
            "topics": [{"name": change.pop("name", self.topic), "partitions": partitions or one()}],
            **change,
        }
        return code(self.client.call("TxnOffsetCommit", 3, **asked).topics[0].partitions[0].error_code)

    def end(self, committed: bool, **change: Any) -> int:
        return code(self.client.call("EndTxn", 3, **self._identity(change), committed=committed).error_code)

    def _identity(self, change: dict[str, Any]) -> dict[str, Any]:
        who = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        return {name: change.pop(name, value) for name, value in who.items()}


@pytest.fixture
def transaction(client: WireClient, group: str, topic: str) -> Transaction:
    """The topic has two partitions; the group has committed (5, "note") in the first."""
    create_topic(client, topic, 2)
    commit(client, group, topic)

    def found() -> bool:
        answer = client.call("FindCoordinator", 4, key_type=1, coordinator_keys=["any"])
        return code(answer.coordinators[0].error_code) == 0

    wait_until(found)
    transaction = Transaction(client, group, topic)
    transaction.begin()
    return transaction


def offsets_after(transaction: Transaction, *, committed: bool) -> list[tuple[int, str | None]]:
    assert transaction.end(committed) == 0
    wait_until(lambda: transaction.end(committed) != CONCURRENT_TRANSACTIONS)
    return fetch(transaction.client, transaction.group, transaction.topic, [0, 1])


def test_offsets_of_a_transaction_are_seen_once_it_is_committed(transaction: Transaction) -> None:
    assert transaction.add_group() == 0
    assert transaction.commit_offset() == 0
    answer = transaction.client.call(
        "OffsetFetch",
        7,
        group_id=transaction.group,
        topics=[{"name": transaction.topic, "partition_indexes": [0, 1]}],
        require_stable=True,
    )
    assert [code(each.error_code) for each in answer.topics[0].partitions] == [88, 0]
    assert offsets_after(transaction, committed=True) == [(99, "other"), (-1, "")]


def test_offsets_of_an_aborted_transaction_leave_no_trace(transaction: Transaction) -> None:
    assert transaction.add_group() == 0
    assert transaction.commit_offset() == 0
    assert offsets_after(transaction, committed=False) == [(5, "note"), (-1, "")]


@pytest.mark.parametrize(("change", "partitions", "error"), [case[1:] for case in WRONG_PARTITIONS])
def test_a_transactional_commit_to_what_is_not_there_changes_nothing(
    transaction: Transaction, change: dict[str, Any], partitions: Any, error: int
) -> None:
    assert transaction.add_group() == 0
    assert transaction.commit_offset(partitions, **change) == error
    assert offsets_after(transaction, committed=True) == [(5, "note"), (-1, "")]


def test_a_transactional_commit_by_who_may_not_changes_nothing(transaction: Transaction) -> None:
    assert transaction.commit_offset() == INVALID_TXN_STATE, "the group was not added to the transaction"
    assert transaction.end(True) == INVALID_TXN_STATE, "nothing has begun"
    assert transaction.add_group(transactional_id="nobody's") == INVALID_PRODUCER_ID_MAPPING
    assert transaction.add_group(producer_id=transaction.producer_id + 1_000) == INVALID_PRODUCER_ID_MAPPING
    assert transaction.add_group(producer_epoch=transaction.epoch + 1) == PRODUCER_FENCED
    assert transaction.add_group(transactional_id="") == INVALID_REQUEST
    assert transaction.add_group() == 0
    member = enter(transaction.client, transaction.group)
    for change, error in (
        ({"producer_epoch": transaction.epoch + 1}, INVALID_PRODUCER_EPOCH),
        ({"producer_epoch": transaction.epoch - 1}, INVALID_PRODUCER_EPOCH),
        ({"producer_id": transaction.producer_id + 1_000}, INVALID_PRODUCER_ID_MAPPING),
        ({"group_id": ""}, INVALID_GROUP_ID),
        ({"generation_id": 1, "member_id": "nobody"}, UNKNOWN_MEMBER),
        ({"generation_id": 2, "member_id": member.member_id}, ILLEGAL_GENERATION),
    ):
        assert transaction.commit_offset(**change) == error, change
    for change in ({"producer_epoch": transaction.epoch + 1}, {"producer_epoch": transaction.epoch - 1}):
        assert transaction.end(True, **change) == PRODUCER_FENCED
    assert transaction.end(True, producer_id=transaction.producer_id + 1_000) == INVALID_PRODUCER_ID_MAPPING
    assert offsets_after(transaction, committed=True) == [(5, "note"), (-1, "")]


def test_a_zombie_of_an_old_generation_commits_nothing_in_its_transaction(transaction: Transaction) -> None:
    """KIP-447: what fences a consume-transform-produce application is the generation of its group."""
    member = enter(transaction.client, transaction.group)
    assert transaction.add_group() == 0
    leaving = [{"member_id": member.member_id, "group_instance_id": None}]
    transaction.client.call("LeaveGroup", 3, group_id=transaction.group, members=leaving)
    enter(transaction.client, transaction.group)
    assert transaction.commit_offset(generation_id=1, member_id=member.member_id) == UNKNOWN_MEMBER
    assert offsets_after(transaction, committed=True) == [(5, "note"), (-1, "")]
