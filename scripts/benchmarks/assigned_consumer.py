"""Kafka's Java consumer reading assigned partitions, driven through py4j: what ConsumerPerformance does, without a group."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from types import TracebackType

import jars
import pyspark
from kafka_reference import java
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from benchmarks.kafka_tools import TOOL_HEAP, ToolFailed

STALLED_S = 30.0


class AssignedConsumer:
    """One JVM that makes a new consumer for each reading, so that only the first of them pays for its start."""

    def __enter__(self) -> AssignedConsumer:
        py4j = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
        port, self._process = launch_gateway(
            jarpath=str(py4j),
            classpath=":".join(jars.jars("kafka")),
            javaopts=[f"-Xmx{TOOL_HEAP}", "-XX:+UseG1GC"],
            java_path=java(),
            die_on_exit=True,
            return_proc=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gateway.shutdown()
        self._process.stdin.close()  # the JVM ends when this pipe breaks
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)

    def records_per_s(self, bootstrap_servers: str, topic: str, partitions: int, records: int) -> float:
        """Read `records` records from the beginning, in records a second from the first poll. Raises `ToolFailed`."""
        jvm = self._gateway.jvm
        consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._settings(bootstrap_servers))
        try:
            assigned = jvm.java.util.ArrayList()
            for partition in range(partitions):
                assigned.add(jvm.org.apache.kafka.common.TopicPartition(topic, partition))
            consumer.assign(assigned)
            consumer.seekToBeginning(assigned)
            patience = jvm.java.time.Duration.ofMillis(100)
            seen = 0
            started = last = time.perf_counter()
            while seen < records:
                count = consumer.poll(patience).count()
                now = time.perf_counter()
                if count:
                    seen, last = seen + count, now
                elif now - last > STALLED_S:
                    raise ToolFailed(f"the consumer stood still at {seen} of {records} records for {STALLED_S:.0f} s")
            return seen / (last - started)
        finally:
            consumer.close()

    def _settings(self, bootstrap_servers: str) -> object:
        settings = self._gateway.jvm.java.util.Properties()
        deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        for name, value in {
            "bootstrap.servers": bootstrap_servers,
            "key.deserializer": deserializer,
            "value.deserializer": deserializer,
            # ConsumerPerformance's own
            "receive.buffer.bytes": str(2 * 1024 * 1024),
            "max.partition.fetch.bytes": str(1024 * 1024),
            "check.crcs": "false",
            # Each poll crosses into Python once: few, so that it does not count.
            "max.poll.records": "20000",
        }.items():
            settings.setProperty(name, value)
        return settings
