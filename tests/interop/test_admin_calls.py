"""Each method of Kafka's Java `Admin` has the same outcome on both brokers, but for those that are listed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jars
import pytest
from kafka_reference import ApacheKafka, BrokerProcess, Kafkalake, java, topic_name

PROGRAM = Path(__file__).parent / "AdminCalls.java"
UNSUPPORTED = "UnsupportedVersionException"
DIFFERENT = {
    "describeConfigs CLIENT_METRICS": "InvalidRequestException",
    "incrementalAlterConfigs CLIENT_METRICS": "InvalidRequestException",
    "listConfigResources": "type=TOPIC",  # Apache Kafka has one of client metrics besides
    "alterClientQuotas": UNSUPPORTED,
    "alterClientQuotas unknown": UNSUPPORTED,
    "describeClientQuotas again": "[]",
    "alterUserScramCredentials": UNSUPPORTED,
    "describeUserScramCredentials again": "[]",
    "alterUserScramCredentials delete": UNSUPPORTED,
    "addRaftVoter": UNSUPPORTED,
    "removeRaftVoter": UNSUPPORTED,
}
"""Calls with another outcome here, and what is in it. Clients are neither throttled nor asked for a password."""


def outcomes(broker: BrokerProcess, topic: str) -> dict[str, str]:
    command = [java(), "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", ":".join(jars.jars("kafka")), str(PROGRAM)]
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
    expected, found = outcomes(kafka_reference, topic), outcomes(_shared_kafkalake, topic)
    assert len(expected) > 80
    assert {name for name in expected if expected[name] != found[name]} == set(DIFFERENT)
    assert {name: found[name] for name, text in DIFFERENT.items() if text not in found[name]} == {}
