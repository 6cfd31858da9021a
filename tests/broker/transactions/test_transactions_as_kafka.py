"""The same requests get the same answers from our transaction coordinator and from an Apache Kafka 4.1.1."""

from __future__ import annotations

import uuid

import pytest
from broker.transactions.kafka_world import KafkaTransactions
from broker.transactions.our_world import OurTransactions
from broker.transactions.scripts import SCRIPTS, Script
from kafka_reference import ApacheKafka, create_topic


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_our_coordinator_answers_as_kafka_does(script: Script, kafka_reference: ApacheKafka) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_reference, topic, partitions=4)
    kafka = KafkaTransactions(kafka_reference.bootstrap_servers, f"app-{uuid.uuid4().hex[:8]}")
    kafka.wait_for_coordinator()
    theirs = script(kafka, topic)
    ours = script(OurTransactions(), topic)
    for number, (expected, found) in enumerate(zip(theirs, ours, strict=True), 1):
        assert found == expected, f"line {number}"
