"""Clients of threads where the system refuses a socket: for one address of a broker, or for a while."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kafka_reference import Kafkalake
from waiting import wait_until

import kafkalake
from kafkalake.client.errors import ClientTimeoutError
from kafkalake.errors import BrokerUnavailableError

NO_FAMILY = 1_000
"""No family of addresses. To a system without IPv6 that of `::1` is none either, though `localhost` may have it."""
STANDARD_STREAMS = 3
"""A limit is on the number of a descriptor, not on how many there are: below this one all are in use."""


def test_an_address_of_a_family_that_the_system_lacks_is_passed_over(
    _shared_kafkalake: Kafkalake, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = socket.getaddrinfo

    def found(*args: Any, **given: Any) -> list[Any]:
        return [(NO_FAMILY, socket.SOCK_STREAM, 0, "", ("::1", 9_092, 0, 0)), *find(*args, **given)]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    with kafkalake.Producer(bootstrap_servers=_shared_kafkalake.bootstrap_servers) as producer:
        assert producer.send(topic, b"v").get(30).offset == 0
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **given: found(*args, **given)[:1])
    with (
        kafkalake.Admin(bootstrap_servers=_shared_kafkalake.bootstrap_servers, first_contact_ms=0) as admin,
        pytest.raises(BrokerUnavailableError, match=r"no broker answers at .*: Address family not supported"),
    ):
        admin.list_topics()


@contextlib.contextmanager
def few_descriptors(number: int) -> Iterator[Callable[[], None]]:
    """Let the process have so many descriptors left. Yield what leaves none, whatever others close from then on."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 20, limits[1]))

    def leave_none() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (STANDARD_STREAMS, limits[1]))

    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(number):
            os.close(taken.pop())
        yield leave_none
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for each in taken:
            os.close(each)


def test_clients_go_on_after_there_was_no_descriptor_for_a_connection(_shared_kafkalake: Kafkalake, topic: str) -> None:
    settings = {"bootstrap.servers": _shared_kafkalake.bootstrap_servers}
    with ExitStack() as clients:
        admin = clients.enter_context(kafkalake.Admin(settings))
        consumer = clients.enter_context(kafkalake.Consumer(settings, auto_offset_reset="earliest"))
        admin.create_topic(topic, partitions=1)
        consumer.assign([(topic, 0)])
        with few_descriptors(3) as leave_none:  # those of a producer without a connection
            producer = clients.enter_context(kafkalake.Producer(settings, max_block_ms=200))
            leave_none()
            for _ in range(2):  # once, and again
                assert consumer.poll(0.2) == []
                with pytest.raises((ClientTimeoutError, BrokerUnavailableError)):
                    producer.partitions_for(topic)

        def is_known() -> bool:
            with contextlib.suppress(ClientTimeoutError, BrokerUnavailableError):
                return producer.partitions_for(topic) == 1
            return False

        wait_until(is_known)
        assert producer.send(topic, b"v").get(30).offset == 0
        assert [record.value for record in consumer.poll(30)] == [b"v"]
