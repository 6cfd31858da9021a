"""Topics that last for one turn, so that its files lie in memory that the turns before have used.

A virtual machine may have given other memory back: the first to write there pays up to 2 s a GB, six times what it takes else,
whoever that is. A broker that has run for a day has filled the page cache, and does not pay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import count

from confluent_kafka.admin import AdminClient
from kafka_reference import BrokerProcess, Cluster, Kafkalake, create_topic
from waiting import wait_until

TIMEOUT_S = 60.0
REMOVING = {"log.initial.task.delay.ms": "1000", "log.segment.delete.delay.ms": "1000"}
"""Settings of brokers of both kinds, by which the files go a second after their topic."""

_numbers = count()


@contextlib.contextmanager
def passing_topic(broker: BrokerProcess | Cluster, name: str, partitions: int = 1, **config: str) -> Iterator[str]:
    """Create a topic whose name begins with `name`, in a cluster with a replica on each broker, and remove it with its files."""
    topic = f"{name}-{next(_numbers)}"
    brokers = broker.brokers if isinstance(broker, Cluster) else [broker]
    create_topic(broker, topic, partitions=partitions, replicas=len(brokers), config=config)
    try:
        yield topic
    finally:
        client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        client.delete_topics([topic])[topic].result(TIMEOUT_S)
        wait_until(lambda: not any(_has_directory(each, topic) for each in brokers))


def _has_directory(broker: BrokerProcess, topic: str) -> bool:
    logs = broker.lake / "logs" if isinstance(broker, Kafkalake) else broker.directory / "data"
    return any(logs.glob(f"**/{topic}-*"))
