"""A member of a group in a process of its own that reads as slowly as it is told.

`python obedient_consumer.py SERVERS GROUP TOPIC`. A number on stdin is how many records more it reads, each of which it commits
and then prints, {"value": number}; between them it stays in its group. It fetches little in advance, so that what it has not
been told to read is still in the broker.
"""

from __future__ import annotations

import json
import sys

import confluent_kafka


def main(servers: str, group: str, topic: str) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1,
            "fetch.message.max.bytes": 1_000,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    for line in sys.stdin:
        left = int(line)
        while left:
            message = consumer.poll(1)
            if message is not None and not message.error():
                consumer.commit(message, asynchronous=False)
                print(json.dumps({"value": int(message.value())}), flush=True)
                left -= 1


if __name__ == "__main__":
    main(*sys.argv[1:])
