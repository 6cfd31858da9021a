"""Clients at full speed beside the jobs that clean a log: one producer and one consumer that check every offset.

The producer is the only one, so that record N of it is at offset N, with a key and a value that follow from N. So nothing has
to be remembered, however many there are, and a consumer knows of each record whether it is the right one.

A process of its own (tests: `cleaning_load.Load`), so that clients and job do not wait for one interpreter:
`python cleaning_clients.py SERVERS TOPIC RECORDS_MAX COMPACTED`. It prints a JSON line ten times a second, and reads on stdin
`again` (read from the beginning once more) and `drain` (write no more, and end when all is read). The exit code says whether
all was as it should be.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import confluent_kafka

KEYS, ONCE_EVERY = 40, 1_000
TIMEOUT_S = 60
_PADDING = bytes(100)


def key_of(offset: int) -> bytes:
    """Each thousandth key is its record's own; the others come again and again."""
    return b"once %d" % offset if offset % ONCE_EVERY == 0 else b"k%d" % (offset * 7 % KEYS)


def value_of(offset: int) -> bytes:
    return b"%d" % offset + _PADDING


def newest_offsets(end: int) -> list[int]:
    """The offset of each key's last record below `end`."""
    again = {key_of(offset): offset for offset in range(max(0, end - 2 * KEYS), end)}
    return sorted({*again.values(), *range(0, end, ONCE_EVERY)})


class Clients:
    """The two clients, a thread each; `errors` end both."""

    def __init__(self, servers: str, topic: str, records_max: int, compacted: bool) -> None:
        self.written = self.position = self.passed_to = 0
        self.newest: dict[bytes, bytes] = {}
        self.errors: list[str] = []
        self.again, self.drain, self.stop = threading.Event(), threading.Event(), threading.Event()
        self._servers, self._topic, self._records_max, self._compacted = servers, topic, records_max, compacted
        self.threads = [threading.Thread(target=self._write), threading.Thread(target=self._read)]

    def check(self) -> None:
        """Of each key, the consumer's last value is the last that was written."""
        for offset in newest_offsets(self.written):
            if offset >= self.passed_to and self.newest.get(key_of(offset)) != value_of(offset):
                self._fail(f"the last value of {key_of(offset)!r} is {self.newest.get(key_of(offset), b'')[:20]!r}")

    def _fail(self, sentence: str) -> None:
        self.errors.append(sentence)
        self.stop.set()

    def _write(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
        )

        def acknowledged(error: Any, message: Any) -> None:
            if error or message.offset() != self.written:
                self._fail(f"record {self.written}: {error or f'acknowledged at {message.offset()}'}")
            self.written += 1

        number = 0
        while number < self._records_max and not self.drain.is_set() and not self.stop.is_set():
            try:
                producer.produce(self._topic, value_of(number), key_of(number), 0, on_delivery=acknowledged)
            except BufferError:
                producer.poll(0.05)
                continue
            number += 1
            if number % 1_000 == 0:
                producer.poll(0)
        if producer.flush(TIMEOUT_S):
            self._fail("records were neither acknowledged nor refused")

    def _read(self) -> None:
        while not self.stop.is_set():
            self.position = 0
            self.again.clear()
            consumer = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": self._servers,
                    "group.id": "load",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error" if self._compacted else "earliest",
                    "check.crcs": True,
                    "log_level": 0,
                }
            )
            consumer.assign([confluent_kafka.TopicPartition(self._topic, 0, 0)])
            while not self.stop.is_set() and not self.again.is_set():
                for message in consumer.consume(10_000, 0.1):
                    self._take(message)
            consumer.close()

    def _take(self, message: Any) -> None:
        if message.error():
            return self._fail(str(message.error()))
        offset, key, value = message.offset(), message.key(), message.value()
        if offset < self.position or key != key_of(offset) or value != value_of(offset):
            return self._fail(f"{key!r}, {value[:20]!r} at offset {offset}, after {self.position}")
        if offset > self.position:
            self.passed_to = offset
            if self._compacted and -(-self.position // ONCE_EVERY) * ONCE_EVERY < offset:
                return self._fail(f"{offset} follows {self.position}, though a key between them was written once")
        self.position = offset + 1
        self.newest[key] = value
        return None


def main(servers: str, topic: str, records_max: str, compacted: str) -> int:
    clients = Clients(servers, topic, int(records_max), compacted == "1")

    def listen() -> None:
        for line in sys.stdin:
            getattr(clients, line.strip()).set()

    def say() -> None:
        names = ("written", "position", "passed_to", "errors")
        print(json.dumps({name: getattr(clients, name) for name in names}), flush=True)

    threading.Thread(target=listen, daemon=True).start()
    writer, _ = clients.threads
    for thread in clients.threads:
        thread.start()
    while not clients.stop.wait(0.1):
        say()
        goes_on = writer.is_alive() or clients.again.is_set()
        if clients.drain.is_set() and not goes_on and clients.position == clients.written:
            clients.stop.set()
    for thread in clients.threads:
        thread.join()
    clients.check()
    say()
    return 1 if clients.errors else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
