"""Client quotas: which one is a client's, how long it is to pause, and that it does."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import pytest
from confluent_kafka import Producer
from contract.wire_client import WireClient, batch, create_topic, produce_values
from kafka_reference import Kafkalake, topic_name
from manual_clock import ManualClock

from kafkalake.broker.admin.client_quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
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
    resource_of,
)
from kafkalake.cluster.image import ConfigOf
from kafkalake.errors import InvalidRequestError, UnsupportedVersionError
from kafkalake.server.throttling import ClientQuotas

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


def test_a_debt_is_paid_by_waiting() -> None:
    clock = ManualClock()
    config = quotas(({CLIENT_ID: None}, {REQUEST_PERCENTAGE: 10}))
    found = ClientQuotas(lambda: config, clock)
    assert found.are_set
    pause = found.spent("u", "c", 2_000_000_000)
    assert pause == pytest.approx(9_000, abs=2)
    clock.advance(pause)
    assert found.spent("u", "c", 0) == 0


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
        (USER, "controller_mutation_rate", "1.0"),
        (IP, "connection_creation_rate", "1.0"),
        (IP, PRODUCER_BYTE_RATE, "1.0"),
    ],
)
def test_quotas_that_cannot_be(kind: str, key: str, value: str) -> None:
    with pytest.raises(InvalidRequestError):
        check_quotas(json.dumps({kind: "::1"}), {key: value})


def test_filters_find_entities() -> None:
    config = quotas(*((entity, {REQUEST_PERCENTAGE: 1.0}) for entity in ENTITIES))

    def found(*parts: FilterPart, strict: bool = False) -> list[Entity]:
        return [entity for entity, _ in find_entities(config, parts, strict=strict)]

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


def alter(client: WireClient, key: str, value: float | None, client_id: str) -> None:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None}]
    entity = [{"entity_type": CLIENT_ID, "entity_name": client_id}]
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
