"""Client quotas: which one is a client's, how long it is to pause, and that it does."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from contract.wire_client import WireClient, batch, create_topic, produce_values
from kafka_reference import Kafkalake, topic_name
from manual_clock import ManualClock
from node_in_thread import NodeInThread
from waiting import wait_until

from kafkalake.broker.admin.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    EXACT,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    SPECIFIED,
    USER,
    FilterPart,
    check_quotas,
    find_entities,
    quotas_of,
    resource_of,
)
from kafkalake.cluster.image import ConfigOf, ConfigResource, ResourceKind
from kafkalake.errors import InvalidRequestError, ThrottlingQuotaExceededError, UnsupportedVersionError
from kafkalake.run_blocking import take_all
from kafkalake.server import acceptor, throttling
from kafkalake.server.authorizer import ANONYMOUS
from kafkalake.server.throttling import DELAY_MAX_MS, ClientQuotas, Mutations

Entity = Mapping[str, str | None]


def quotas(*entities: tuple[Entity, Mapping[str, float]]) -> ConfigOf:
    return {
        resource_of(list(entity.items())): {key: repr(value) for key, value in own.items()} for entity, own in entities
    }


def pause_ms(config: ConfigOf, user: str, client_id: str, seconds: float) -> int:
    """Return the pause of a client that has kept the broker busy for so long."""
    found = ClientQuotas(lambda: config, ManualClock())
    assert found.are_set
    return found.spent(user, client_id, int(seconds * 1e9))


ENTITIES: list[Entity] = [
    {USER: "u", CLIENT_ID: "c"},
    {USER: "u", CLIENT_ID: None},
    {USER: "u"},
    {USER: None, CLIENT_ID: "c"},
    {USER: None, CLIENT_ID: None},
    {USER: None},
    {CLIENT_ID: "c"},
    {CLIENT_ID: None},
]
"""In the order in which their quotas count."""


@pytest.mark.parametrize("first", range(len(ENTITIES)))
def test_the_quota_of_the_nearest_entity_counts(first: int) -> None:
    config = quotas(
        *((entity, {REQUEST_PERCENTAGE: 0.2 + each / 20}) for each, entity in enumerate(ENTITIES) if each >= first)
    )
    rate = 0.2 + first / 20
    assert pause_ms(config, "u", "c", 0.1) == pytest.approx((10 - 11 * rate) / rate * 1000, abs=2)


def test_a_client_without_a_quota_does_not_pause() -> None:
    assert pause_ms(quotas(({USER: "other"}, {REQUEST_PERCENTAGE: 1})), "u", "c", 60) == 0
    assert not ClientQuotas(dict, ManualClock()).are_set


def test_all_clients_of_a_user_share_its_quota_and_each_has_its_own_of_the_default() -> None:
    for entity, shared in (({USER: "u"}, True), ({USER: "u", CLIENT_ID: None}, False)):
        config = quotas((entity, {REQUEST_PERCENTAGE: 10}))
        found = ClientQuotas(lambda config=config: config, ManualClock())
        assert found.are_set
        assert found.spent("u", "one", 1_000_000_000) == 0
        assert (found.spent("u", "two", 1_000_000_000) > 0) is shared


def test_only_quotas_that_have_changed_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of 8,000 took 25 ms of the event loop at each change of any setting."""
    read: list[Mapping[str, str]] = []
    monkeypatch.setattr(throttling, "quotas_of", lambda own: read.append(own) or quotas_of(own))
    config = dict(quotas(*(({CLIENT_ID: f"c{number}"}, {REQUEST_PERCENTAGE: 10}) for number in range(100))))
    now = [config]
    found = ClientQuotas(lambda: now[0], ManualClock())
    assert found.are_set
    read.clear()
    now[0] = {**config, ConfigResource(ResourceKind.GROUP, "g"): {"consumer.session.timeout.ms": "50000"}}
    assert found.are_set
    assert read == []
    now[0] = {**now[0], **quotas(({CLIENT_ID: "c7"}, {REQUEST_PERCENTAGE: 1_000}))}
    assert found.are_set
    assert len(read) == 1
    assert found.spent("u", "c7", 5_000_000_000) == 0
    assert found.spent("u", "c8", 5_000_000_000) > 0
    now[0] = {}
    assert not found.are_set


def test_a_debt_is_paid_by_waiting() -> None:
    clock = ManualClock()
    config = quotas(({CLIENT_ID: None}, {REQUEST_PERCENTAGE: 10}))
    found = ClientQuotas(lambda: config, clock)
    assert found.are_set
    pause = found.spent("u", "c", 2_000_000_000)
    assert pause == pytest.approx(9_000, abs=2)
    clock.advance(pause)
    assert found.spent("u", "c", 0) == 0


SMALLEST = 5e-324
"""The smallest number above 0, Java's `Double.MIN_VALUE`."""


def test_a_quota_of_next_to_nothing_lets_its_clients_wait() -> None:
    for rate in (SMALLEST, 1e-300):
        assert pause_ms(quotas(({CLIENT_ID: None}, {REQUEST_PERCENTAGE: rate})), "u", "c", 0.1) == DELAY_MAX_MS
    client = Quotas(({CLIENT_ID: "c"}, {CONTROLLER_MUTATION_RATE: SMALLEST}))
    client.mutations().count(1)
    refused = client.mutations()
    with pytest.raises(ThrottlingQuotaExceededError):
        refused.count(1)
    assert refused.delay_ms == DELAY_MAX_MS


def test_a_quota_counts_after_one_without_a_limit() -> None:
    clock, rate = ManualClock(), math.inf
    found = ClientQuotas(lambda: config, clock)
    for rate in (math.inf, 1.0):
        config = quotas(({CLIENT_ID: None}, {REQUEST_PERCENTAGE: rate}))
        assert found.are_set
        for _ in range(3):
            pause = found.spent("u", "c", 100_000_000_000)
            clock.advance(5)
        assert (pause > 0) == (rate == 1.0)


class Quotas:
    """Quotas that a test changes, and the clock by which they are counted."""

    def __init__(self, *entities: tuple[Entity, Mapping[str, float]]) -> None:
        self.clock = ManualClock()
        self.config = quotas(*entities)
        self.found = ClientQuotas(lambda: self.config, self.clock)

    def mutations(self, *, strict: bool = True, client_id: str = "c", is_brokers: bool = False) -> Mutations:
        request: Any = SimpleNamespace(
            connection=SimpleNamespace(principal=ANONYMOUS),
            context=SimpleNamespace(is_brokers=lambda _: is_brokers),
            client_id=client_id,
            version=6 if strict else 5,
        )
        return self.found.mutations(request, strict_since=6)

    def connect(self, address: str, times: int = 1) -> list[int]:
        return [self.found.admit_connection(address) for _ in range(times)]


def test_a_debt_outlives_a_change_of_the_quota_and_not_its_end() -> None:
    of_c, of_d = {CLIENT_ID: "c"}, {CLIENT_ID: "d"}
    client = Quotas((of_c, {CONTROLLER_MUTATION_RATE: 1}))
    client.mutations().count(21)
    client.config = quotas((of_c, {CONTROLLER_MUTATION_RATE: 2}), (of_d, {CONTROLLER_MUTATION_RATE: 2}))
    refused = client.mutations()
    with pytest.raises(ThrottlingQuotaExceededError):
        refused.count(1)
    assert refused.delay_ms == 5_001  # 10 too many, at 2 a second
    client.config = quotas((of_d, {CONTROLLER_MUTATION_RATE: 2}))
    client.mutations().count(1_000)
    client.config = quotas((of_c, {CONTROLLER_MUTATION_RATE: 1}))
    client.mutations().count(1)


def test_mutations_beyond_the_burst_are_refused_until_the_debt_is_paid() -> None:
    client = Quotas(({CLIENT_ID: None}, {CONTROLLER_MUTATION_RATE: 0.5}))
    first = client.mutations()
    client.clock.advance(1_000)  # a full bucket stays as it is
    for partitions in (5, 3):
        first.count(partitions)
    assert first.delay_ms == 0
    refused = client.mutations()
    with pytest.raises(ThrottlingQuotaExceededError):
        refused.count(1)
    assert refused.delay_ms == 5_001
    client.mutations(client_id="other").count(1)
    client.mutations(is_brokers=True).count(1)
    client.clock.advance(4_999)
    with pytest.raises(ThrottlingQuotaExceededError):
        client.mutations().count(1)
    client.clock.advance(2)
    client.mutations().count(1)


def test_mutations_are_allowed_while_nothing_is_owed() -> None:
    client = Quotas(({CLIENT_ID: None}, {CONTROLLER_MUTATION_RATE: 1}))
    asked = client.mutations()
    for partitions in (5, 6, 1):
        asked.count(partitions)
    with pytest.raises(ThrottlingQuotaExceededError):
        asked.count(1)


def test_mutations_of_older_versions_are_carried_out_and_delay_their_client() -> None:
    client = Quotas(({USER: "ANONYMOUS"}, {CONTROLLER_MUTATION_RATE: 1}))
    asked = client.mutations(strict=False)
    asked.count(11)
    assert asked.delay_ms == 0
    asked.count(3)
    asked.count(2)
    assert asked.delay_ms == 5_001
    with pytest.raises(ThrottlingQuotaExceededError):
        client.mutations().count(1)
    asked.count(1_000)
    assert asked.delay_ms == throttling.DELAY_MAX_MS


def test_an_address_gets_a_burst_of_connections_and_then_its_rate() -> None:
    broker = Quotas(({IP: "::ffff:10.0.0.1"}, {CONNECTION_CREATION_RATE: 2}))
    assert not broker.found.are_set  # no request is counted
    assert broker.connect("10.0.0.1", 20) == [0] * 20
    assert broker.connect("10.0.0.1", 3) == [501] * 3
    assert broker.connect("10.0.0.2", 30) == [0] * 30
    broker.clock.advance(500)
    assert broker.connect("10.0.0.1", 2) == [0, 501]
    broker.clock.advance(60_000)
    assert broker.connect("10.0.0.1", 21) == [0] * 20 + [501]


def test_each_address_has_its_own_of_the_default() -> None:
    broker = Quotas(({IP: None}, {CONNECTION_CREATION_RATE: 1}), ({IP: "fe80:0::1"}, {CONNECTION_CREATION_RATE: 100}))
    for address in ("10.0.0.1", "10.0.0.2", "::1"):
        assert broker.connect(address, 11) == [0] * 10 + [1_000]
    assert broker.connect("fe80::1%eth0", 11) == [0] * 11


def test_addresses_that_are_idle_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Quotas(({IP: None}, {CONNECTION_CREATION_RATE: 1}))
    buckets = broker.found._addresses
    for number in range(50):
        broker.connect(f"10.0.0.{number}")
    assert len(buckets) == 50
    broker.clock.advance(1_000)
    for number in range(25):  # for each that comes two go
        broker.connect(f"10.0.1.{number}")
    assert len(buckets) == 25
    monkeypatch.setattr(throttling, "BUCKETS_MAX", 60)
    broker.connect("10.9.9.9", 11)
    for number in range(70):
        broker.connect(f"10.0.2.{number}", 5)
        assert broker.connect("10.9.9.9") == [1_000]  # as it is not silent, it is not forgotten
    assert len(buckets) == 60


@pytest.mark.parametrize(
    "entity", [[], [("group", "g")], [(USER, "u"), (USER, "v")], [(USER, "")], [(USER, "u"), (IP, "::1")], [(IP, "x")]]
)
def test_entities_that_are_none(entity: list[tuple[str, str | None]]) -> None:
    with pytest.raises(InvalidRequestError):
        resource_of(entity)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (USER, "nosuch", "1.0"),
        (USER, PRODUCER_BYTE_RATE, "0.0"),
        (USER, PRODUCER_BYTE_RATE, "1.5"),
        (USER, CONSUMER_BYTE_RATE, "1e30"),
        (USER, REQUEST_PERCENTAGE, "nan"),
        (USER, CONTROLLER_MUTATION_RATE, "-1.0"),
        (USER, CONNECTION_CREATION_RATE, "1.0"),
        (IP, CONNECTION_CREATION_RATE, "1.5"),
        (IP, CONNECTION_CREATION_RATE, "2147483648.0"),
        (IP, CONTROLLER_MUTATION_RATE, "1.0"),
        (IP, PRODUCER_BYTE_RATE, "1.0"),
    ],
)
def test_quotas_that_cannot_be(kind: str, key: str, value: str) -> None:
    with pytest.raises(InvalidRequestError):
        check_quotas(json.dumps({kind: "::1"}), {key: value})


def test_filters_find_entities() -> None:
    config = quotas(*((entity, {REQUEST_PERCENTAGE: 1.0}) for entity in ENTITIES))

    def found(*parts: FilterPart, strict: bool = False) -> list[Entity]:
        return [entity for entity, _ in take_all(find_entities(config, parts, strict=strict))]

    assert len(found()) == len(ENTITIES)
    assert found(strict=True) == []
    assert found(FilterPart(USER, EXACT, "u"), strict=True) == [{USER: "u"}]
    assert len(found(FilterPart(USER, EXACT, "u"))) == 3
    assert len(found(FilterPart(USER, SPECIFIED, None), FilterPart(CLIENT_ID, DEFAULT, None))) == 2
    for part in (
        FilterPart("", 0, "x"),
        FilterPart(USER, 0, None),
        FilterPart(USER, 1, "x"),
        FilterPart(USER, 9, None),
    ):
        with pytest.raises(InvalidRequestError):
            found(part)
    with pytest.raises(UnsupportedVersionError):
        found(FilterPart("group", EXACT, "g"))


def alter(client: WireClient, key: str, value: float | None, name: str, kind: str = CLIENT_ID) -> None:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None}]
    entity = [{"entity_type": kind, "entity_name": name}]
    answer = client.call("AlterClientQuotas", 1, entries=[{"entity": entity, "ops": ops}], validate_only=False)
    assert answer.entries[0].error_code == 0, answer


@pytest.mark.process
def test_a_producer_over_its_quota_is_slowed_down_and_the_others_are_not(broker: Kafkalake) -> None:
    topic = topic_name()
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, topic)
        alter(client, PRODUCER_BYTE_RATE, 20_000.0, "slow")
        took: dict[str, float] = {}
        for name in ("fast", "slow"):
            began_s = time.monotonic()
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": name, "linger.ms": 0})
            for _ in range(26):  # 260 KB: 13 s at that rate, of which 11 s are the first window
                producer.produce(topic, bytes(10_000))
                assert producer.flush(20) == 0
            took[name] = time.monotonic() - began_s
        assert took["slow"] > 1.5 > took["fast"]
        alter(client, PRODUCER_BYTE_RATE, None, "slow")


@pytest.mark.process
def test_clients_that_a_quota_stops_get_answers_and_go_on_without_it(broker: Kafkalake) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        alter(client, REQUEST_PERCENTAGE, SMALLEST, "stopped")
        for _ in range(3):
            with WireClient(broker.bootstrap_servers, client_id="stopped") as stopped:
                assert stopped.call("ApiVersions", 0).error_code == 0
        alter(client, REQUEST_PERCENTAGE, None, "stopped")
        with WireClient(broker.bootstrap_servers, client_id="stopped") as again:
            for _ in range(3):
                assert again.call("ApiVersions", 0).error_code == 0


@pytest.mark.process
def test_the_answer_says_how_long_the_client_is_to_pause(broker: Kafkalake) -> None:
    topic = topic_name()
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, topic)
        alter(client, PRODUCER_BYTE_RATE, 1_000.0, "wire-client")
        alter(client, CONSUMER_BYTE_RATE, 1_000.0, "wire-client")
        values = produce_values(topic, batch([(None, bytes(11_500))]))
        assert client.call("Produce", 9, **values).throttle_time > 300
        began_s = time.monotonic()
        client.call("ApiVersions", 0)
        assert time.monotonic() - began_s > 0.3
        for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE):
            alter(client, key, None, "wire-client")


@pytest.mark.process
def test_few_connections_beyond_the_quota_stay_open_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "_HELD_MAX", 2)
    with NodeInThread(tmp_path / "lake") as node, ExitStack() as clients:
        used = node.node.acceptor
        assert used is not None
        with WireClient(node.servers) as client:
            alter(client, CONNECTION_CREATION_RATE, 1.0, "127.0.0.1", kind=IP)
            wait_until(lambda: any("rate" in key for own in node.broker.cluster.config.values() for key in own))
            admitted = [clients.enter_context(WireClient(node.servers)) for _ in range(10)]
            began_s = time.monotonic()
            refused = [clients.enter_context(WireClient(node.servers)) for _ in range(5)]
            for each in refused:
                each.send("ApiVersions", 0)
            for each in refused[2:]:
                assert each.is_closed()
            assert time.monotonic() - began_s < 0.5
            assert node.on_loop(lambda: (len(used._held), used.connections)) == (2, 11)
            for each in refused[:2]:
                assert each.is_closed()
            assert 0.5 < time.monotonic() - began_s < 5
            wait_until(lambda: node.on_loop(lambda: len(used._held)) == 0)
            for each in admitted:
                each.call("ApiVersions", 0)
