"""Client quotas as settings: which entities there are, what they may be set to, and which of them a filter finds.

An entity is a user, a client id, or both, or an IP address; None stands for the default. It is a resource of the cluster's image,
its name the entity as JSON. `server/throttling.py` enforces the quotas. Source: Apache Kafka 4.1, "Quotas"; KIP-546, 599, 612.

*Different from Kafka:* it also takes the name of a host for the address that it resolves to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from kafkalake.broker.admin.config_admin import check_name
from kafkalake.cluster.image import ConfigOf, ConfigResource, ResourceKind
from kafkalake.errors import InvalidRequestError, UnsupportedVersionError
from kafkalake.run_blocking import Steps

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
_OF_CLIENTS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
_OF_ADDRESSES = (CONNECTION_CREATION_RATE,)
_INTEGRAL = {
    PRODUCER_BYTE_RATE: ("a LONG", 2**63 - 1),
    CONSUMER_BYTE_RATE: ("a LONG", 2**63 - 1),
    CONNECTION_CREATION_RATE: ("an INT", 2**31 - 1),
}
"""Quotas that are whole numbers, with their type and its largest value."""

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
"""How a part of a filter matches: a name, the default, any of the two."""

Entity = Mapping[str, str | None]
Quotas = Mapping[str, float]


class FilterPart(NamedTuple):
    """A part of a filter: the kind of entity, how it matches, and the name for `EXACT`."""

    kind: str
    match: int
    name: str | None


def resource_of(entity: Sequence[tuple[str, str | None]]) -> ConfigResource:
    """Return the resource of an entity. Raise `InvalidRequestError` if there is no such entity."""
    kinds = [kind for kind, _ in entity]
    if not kinds:
        raise InvalidRequestError("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if kinds.count(kind) > 1:
            raise InvalidRequestError(f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
        check_name(name or "")
    if IP in kinds and len(kinds) > 1:
        raise InvalidRequestError(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    _check_ip(dict(entity).get(IP))
    return ConfigResource(ResourceKind.CLIENT_QUOTA, json.dumps(dict(sorted(entity))))


def _check_ip(name: str | None) -> None:
    if name is not None:
        try:
            ip_address(name)
        except ValueError:
            raise InvalidRequestError(f"{name} is not a valid IP or resolvable host.") from None


def entity_of(resource: ConfigResource) -> Entity:
    """Return the entity of a resource."""
    entity: dict[str, str | None] = json.loads(resource.name)
    return entity


def entities(config: ConfigOf) -> Iterator[tuple[Entity, Quotas]]:
    """Yield all entities that have quotas, in order of their resources."""
    for resource in sorted(each for each in config if each.kind is ResourceKind.CLIENT_QUOTA):
        yield entity_of(resource), quotas_of(config[resource])


def quotas_of(settings: Mapping[str, str]) -> Quotas:
    """Return the quotas that an entity's settings are."""
    return {key: float(text) for key, text in settings.items()}


def check_quotas(resource: str, settings: Mapping[str, str | None]) -> dict[str, str]:
    """Return the quotas of an entity as they are kept. Raise `InvalidRequestError` if one is not valid."""
    quotas = _OF_ADDRESSES if IP in json.loads(resource) else _OF_CLIENTS
    checked = {}
    for key, text in settings.items():
        if key not in quotas:
            raise InvalidRequestError(f"Invalid configuration key {key}")
        value = float(text or 0)
        if not value > 0:
            raise InvalidRequestError(f"Quota {key} must be greater than 0")
        if key in _INTEGRAL:
            _check_integral(key, value)
        checked[key] = repr(value)
    return checked


def _check_integral(key: str, value: float) -> None:
    kind, largest = _INTEGRAL[key]
    if value > largest:
        raise InvalidRequestError(f"Proposed value for {key} is too large for {kind}.")
    if value % 1 > 1e-6:
        raise InvalidRequestError(f"{key} cannot be a fractional value.")


def find_entities(config: ConfigOf, parts: Sequence[FilterPart], *, strict: bool) -> Steps[list[tuple[Entity, Quotas]]]:
    """Return the entities that match all parts of a filter; with `strict` only those that have no others. In steps.

    Raise `InvalidRequestError` or `UnsupportedVersionError` if the filter is not valid.
    """
    _check_filter(parts)
    found = []
    for entity, quotas in entities(config):
        yield
        if all(_matches(entity, part) for part in parts) and not (strict and len(entity) != len(parts)):
            found.append((entity, quotas))
    return found


def _matches(entity: Entity, part: FilterPart) -> bool:
    return part.kind in entity and (part.match == SPECIFIED or entity[part.kind] == part.name)


def _check_filter(parts: Sequence[FilterPart]) -> None:
    kinds = [part.kind for part in parts]
    for kind, match, name in parts:
        if not kind:
            raise InvalidRequestError("Invalid empty entity type.")
        if kinds.count(kind) > 1:
            raise InvalidRequestError(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersionError(f"Unsupported entity type {kind}")
        if match not in (EXACT, DEFAULT, SPECIFIED):
            raise InvalidRequestError(f"Unknown match type {match}")
        if (match == EXACT) == (name is None):
            word = ("EXACT, but set match string to null.", "DEFAULT, but also specified a match string.",
                    "SPECIFIED, but also specified a match string.")[match]  # fmt: skip
            raise InvalidRequestError(f"Request specified MATCH_TYPE_{word}")
    if IP in kinds and len(kinds) > 1:
        raise InvalidRequestError(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
