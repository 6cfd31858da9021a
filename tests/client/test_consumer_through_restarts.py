"""A consumer of a group reads on through brokers that are killed and started again."""

from __future__ import annotations

import uuid

import pytest
from contract.test_own_consumer_contract import consumer, four, produce, values_until
from kafka_reference import BrokerProcess

__all__ = ["four"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_broker_that_is_killed_and_restarted_is_survived_twice(
    four: BrokerProcess, topic: str, protocol: str
) -> None:
    group = {"group.id": f"g-{uuid.uuid4().hex[:8]}", "group.protocol": protocol}
    produce(four, topic, [b"0"])
    with consumer(four, **group) as reader:
        reader.subscribe([topic])
        found = values_until(reader, 1)
        reader.commit()
        for number in (1, 2):
            four.kill()
            assert reader.poll(0.2) == []
            four.start()
            produce(four, topic, [b"%d" % number])
            found += values_until(reader, 1, 90)
        assert found == [b"0", b"1", b"2"]
