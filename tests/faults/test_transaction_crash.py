"""The broker is killed at each step of a transaction's two-phase commit, by name, and started again.

Whatever the step: once the end is decided it is the same in all partitions and for the group's offsets, and nothing hangs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from contract.wire_client import WireClient, create_topic
from contract.wire_transactions import (
    NONE,
    TransactionalClient,
    committed_offset,
    end_offsets,
    find_coordinator,
    state_of,
)
from deltalake import DeltaTable
from kafka_reference import BrokerFailed, Kafkalake
from waiting import wait_until

from kafkalake.broker.transactions.fault_points import KILL_AT
from kafkalake.dataset import topic_dataset

PARTITIONS = 3
GROUP = "copier"

BEFORE_IT_IS_DECIDED = "transaction-before-prepare"
STEPS = (
    BEFORE_IT_IS_DECIDED,
    "transaction-prepared",
    "transaction-before-marker",
    "transaction-marker-written",
    "transaction-marker-written:3",
    "transaction-all-markers-written",
    "transaction-completed",
)


def wait_for_state(client: WireClient, state: str) -> None:
    wait_until(lambda: state_of(client, "copier") == state)


def answer_again(producer: TransactionalClient, client: WireClient, asking: tuple[int, int], *, committed: bool) -> int:
    """A client that heard no answer asks the same again."""
    producer.client = client
    producer.producer_id, producer.epoch = asking
    return producer.end(committed=committed)


@pytest.mark.parametrize(
    "version_2", [True, pytest.param(False, marks=pytest.mark.long)], ids=["transactions version 2", "older clients"]
)
def test_a_kill_at_any_step_leaves_all_of_a_transaction_or_nothing(
    kafkalake_broker: Any, tmp_path: Path, version_2: bool
) -> None:
    kill_at = tmp_path / "kill-at"
    kill_at.write_text("")
    broker: Kafkalake = kafkalake_broker(environment={KILL_AT: str(kill_at)})
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "out", PARTITIONS)
        create_topic(client, "in", 1)
        find_coordinator(client, GROUP, 0)
    expected: list[bytes] = []
    offset = -1
    for number, step in enumerate(STEPS if version_2 else STEPS[1:5]):
        committed = number % 2 == (0 if version_2 else 1)
        with WireClient(broker.bootstrap_servers) as client:
            producer = TransactionalClient(client, "copier", version_2=version_2)
            assert producer.init() == NONE
            values = [b"v%d-%d" % (number, partition) for partition in range(PARTITIONS)]
            producer.write("out", {partition: [value] for partition, value in enumerate(values)})
            producer.send_offsets(GROUP, "in", {0: number + 1})
            kill_at.write_text(step)
            asking = producer.producer_id, producer.epoch
            with pytest.raises((ConnectionError, TimeoutError)):
                producer.end(committed=committed)
                raise ConnectionError  # answered, and killed after that
        wait_until(lambda: not broker.is_running())
        broker.kill()
        if step == "transaction-prepared":
            kill_at.write_text("transaction-marker-written:2")  # while it makes good what it left behind
            with pytest.raises(BrokerFailed):
                broker.start()
        kill_at.write_text("")
        broker.start()
        with WireClient(broker.bootstrap_servers) as client:
            if step == BEFORE_IT_IS_DECIDED:
                assert state_of(client, "copier") == "Ongoing"
                assert end_offsets(client, "out", PARTITIONS, read_committed=True) != end_offsets(
                    client, "out", PARTITIONS, read_committed=False
                )
                assert committed_offset(client, GROUP, "in", require_stable=True) == "unstable"
                assert answer_again(producer, client, asking, committed=committed) == NONE
            wait_for_state(client, "CompleteCommit" if committed else "CompleteAbort")
            if committed:
                expected += values
                offset = number + 1
            assert end_offsets(client, "out", PARTITIONS, read_committed=True) == end_offsets(
                client, "out", PARTITIONS, read_committed=False
            ), step
            assert committed_offset(client, GROUP, "in", require_stable=True) == offset, step
            assert answer_again(producer, client, asking, committed=committed) == NONE
    lake = broker.lake
    broker.stop()
    rows = topic_dataset(lake, "out").to_table(columns=["value"]).column("value").to_pylist()
    assert sorted(rows) == sorted(expected)
    (row,) = DeltaTable(lake / "metadata" / "transactions").to_pyarrow_table().to_pylist()
    assert (row["transactional_id"], row["partitions"]) == ("copier", [])
