"""Each method of Kafka's Java `Admin` has the same outcome on both brokers."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kafka_reference import ApacheKafka, BrokerProcess, Kafkalake, topic_name
from quick_jvm import kafka_command

PROGRAM = Path(__file__).parent / "AdminCalls.java"


def outcomes(broker: BrokerProcess, topic: str) -> dict[str, str]:
    command = [*kafka_command("-Xmx256m"), str(PROGRAM)]
    run = subprocess.run(
        [*command, broker.bootstrap_servers, "0", topic], capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, run.stderr
    lines = (line.split("\t", 1) for line in run.stdout.splitlines() if "\t" in line)
    return {name: outcome.replace(topic, "TOPIC") for name, outcome in lines}


@pytest.mark.exhaustive
def test_the_methods_of_admin_answer_as_on_apache_kafka(
    _shared_kafkalake: Kafkalake, kafka_reference: ApacheKafka
) -> None:
    topic = topic_name("admin")
    with ThreadPoolExecutor() as at_once:
        expected, found = at_once.map(outcomes, (kafka_reference, _shared_kafkalake), (topic, topic))
    assert len(expected) > 80
    assert {name: (expected[name], found[name]) for name in expected if expected[name] != found[name]} == {}
