"""One consumer of a group in a process of its own: `python group_member.py CLIENT SERVERS GROUP TOPIC [OPTIONS]`.

OPTIONS is JSON: {"instance": group.instance.id, "assignors": [names, the preferred one first], "protocol": "consumer"}.

Prints a JSON line per event: {"assigned": [partitions]}, {"value": text, "partition": n}. Commits after each record. Ends
in order, leaving the group, at SIGTERM; at SIGKILL it just dies. Every client is somebody else's code.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

import kafka_python_group

SESSION_TIMEOUT_MS = 6_000


class Ended(Exception):
    """SIGTERM came."""


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def end(number: int, frame: Any) -> None:
    raise Ended


def confluent(servers: str, group: str, topic: str, instance: str | None, assignors: list[str], protocol: str) -> None:
    import confluent_kafka

    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 500,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    if protocol == "consumer":
        settings |= {"group.protocol": protocol}
        settings |= {"group.remote.assignor": assignors[0]} if assignors else {}
    else:
        settings |= {
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": ",".join(assignors or ["range"]),
        }
    consumer = confluent_kafka.Consumer(settings | ({"group.instance.id": instance} if instance else {}))
    consumer.subscribe([topic])
    assigned = None
    try:
        while True:
            message = consumer.poll(0.1)
            now = sorted(each.partition for each in consumer.assignment())
            if now != assigned:
                assigned = now
                say(assigned=now)
            if message is not None and not message.error():
                try:
                    consumer.commit(message, asynchronous=False)
                except confluent_kafka.KafkaException as error:
                    say(error=str(error))
                    continue
                say(value=message.value().decode(), partition=message.partition())
    except Ended:
        consumer.close()


def kafka_python(
    servers: str, group: str, topic: str, instance: str | None, assignors: list[str], protocol: str
) -> None:
    import kafka
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    known = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}

    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=500,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        metadata_max_age_ms=500,
        group_instance_id=instance,
        partition_assignment_strategy=[known[name] for name in assignors or ["range", "roundrobin"]],
    )
    assigned = None
    try:
        while True:
            batches = kafka_python_group.poll(consumer, 1)
            now = sorted(each.partition for each in consumer.assignment())
            if now != assigned:
                assigned = now
                say(assigned=now)
            for records in batches.values():
                for record in records:
                    try:
                        consumer.commit()
                    except kafka.errors.KafkaError as error:
                        say(error=str(error))
                        continue
                    say(value=record.value.decode(), partition=record.partition)
    except Ended:
        consumer.close()


def aio(servers: str, group: str, topic: str, instance: str | None, assignors: list[str], protocol: str) -> None:
    import aiokafka
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    known = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=500,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            metadata_max_age_ms=500,
            group_instance_id=instance,
            partition_assignment_strategy=[known[name] for name in assignors or ["roundrobin"]],
        )
        await consumer.start()
        assigned = None
        while not stop.is_set():
            batches = await consumer.getmany(timeout_ms=100, max_records=1)
            now = sorted(each.partition for each in consumer.assignment())
            if now != assigned:
                assigned = now
                say(assigned=now)
            for records in batches.values():
                for record in records:
                    try:
                        await consumer.commit()
                    except aiokafka.errors.KafkaError as error:
                        say(error=str(error))
                        continue
                    say(value=record.value.decode(), partition=record.partition)
        await consumer.stop()

    asyncio.run(run())


RUN = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aio}

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    options = json.loads(sys.argv[5]) if len(sys.argv) > 5 else {}
    RUN[sys.argv[1]](
        *sys.argv[2:5], options.get("instance"), options.get("assignors", []), options.get("protocol", "classic")
    )
