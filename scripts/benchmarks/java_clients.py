"""Kafka's Java clients in one JVM, driven through py4j: for what none of Kafka's own tools measures."""

from __future__ import annotations

import subprocess
import time
import uuid
from pathlib import Path
from types import TracebackType

import jars
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from quick_jvm import java

from benchmarks.kafka_tools import TOOL_HEAP


class JavaClients:
    """One JVM for all rounds: only the first pays for its start. Each call crosses over in about 0.1 ms, for either broker."""

    def __enter__(self) -> JavaClients:
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

    def transactions_per_s(
        self, servers: str, topic: str, partitions: int, count: int, records: int, record_bytes: int
    ) -> float:
        """Transactions a second of one KafkaProducer with its default settings."""
        jvm = self._gateway.jvm
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        settings = jvm.java.util.Properties()
        for name, value in {
            "bootstrap.servers": servers,
            "transactional.id": f"measure-{uuid.uuid4().hex[:10]}",
            "key.serializer": serializer,
            "value.serializer": serializer,
        }.items():
            settings.setProperty(name, value)
        producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)
        try:
            producer.initTransactions()
            to_send = [
                jvm.org.apache.kafka.clients.producer.ProducerRecord(
                    topic, number % partitions, None, bytes(record_bytes)
                )
                for number in range(records)
            ]
            started = time.perf_counter()
            for _ in range(count):
                producer.beginTransaction()
                for record in to_send:
                    producer.send(record)
                producer.commitTransaction()
            return count / (time.perf_counter() - started)
        finally:
            producer.close()
