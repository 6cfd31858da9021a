"""Client quotas are enforced: a client that exceeds one is answered and then, as in Kafka, not read from for a while (KIP-219).

The answers to Produce and Fetch say for how long (`throttle_time_ms`). Bytes that were produced and fetched are counted, and for
`request_percentage` the time that the event loop spends on a request before it waits for anything; 100 is all of that one thread. A
quota is that of the nearest entity: user and client id, user, client id, each by name before the default. Clients share a bucket as
their entity says. Other brokers are exempt.

`controller_mutation_rate` (KIP-599) limits the partitions that a client creates and deletes. The controller counts them, for
clients of all brokers: a forwarded request has its client's name. While the rate is exceeded, requests whose version knows the
error are refused with THROTTLING_QUOTA_EXCEEDED, older ones are carried out and delay their client.

`connection_creation_rate` (KIP-612) limits the connections that a broker accepts from an address: one beyond it is closed unread,
after a while. Of this quota no connection is exempt.

*Different from Kafka:* a consumer over its quota gets its records before the pause, not an empty answer. An address that was
refused gets one connection after the other as its rate allows; Kafka counts in windows, and lets it have those of a whole one
at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from kafkalake.broker.admin.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Entity,
    Quotas,
    entity_of,
    quotas_of,
)
from kafkalake.broker.partitions.token_bucket import WINDOW_S, TokenBucket
from kafkalake.clock import Clock
from kafkalake.cluster.image import ConfigOf, ConfigResource, ResourceKind
from kafkalake.errors import ThrottlingQuotaExceededError
from kafkalake.server.request import Request
from kafkalake.wire.produce_request import API_KEY as PRODUCE_KEY
from kafkalake.wire.throttle_time import write_fetch_throttle_time, write_produce_throttle_time

DELAY_MAX_MS = 60_000
"""The longest pause at once. What is left of a debt delays the next request."""
CLOSE_DELAY_MAX_MS = 1_000
"""The longest time until a connection that is too much is closed, as in Kafka: one of its windows."""
FETCH_KEY = 1
BUCKETS_MAX = 10_000
"""The most clients that are counted, and the most addresses. The one that was silent longest is forgotten first."""
_CONNECTIONS_WINDOW_S = 10
"""Kafka's rate of connections is that of at least ten seconds: so many come at once."""
_IDLE_AT_ONCE = 2
_NS_PER_PERCENT = 10_000_000

_Key = tuple[str | None, str | None, str | None]
"""User, client id and address: "" is the default, None is not part of the entity."""


class _Used:
    """The bucket of clients of `entity` that share one. `rate`: their quota now."""

    __slots__ = ("bucket", "entity", "rate")

    def __init__(self, entity: _Key, rate: float, clock: Clock, window_s: int) -> None:
        self.entity = entity
        self.rate = rate
        self.bucket = TokenBucket(clock, lambda: self.rate, window_s)


class _Buckets:
    """Buckets by quota and by who shares them, a bounded number. Those that are full again go when others come."""

    def __init__(self, clock: Clock, window_s: int) -> None:
        self._clock = clock
        self._window_s = window_s
        self._used: OrderedDict[tuple[str, _Key], _Used] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used)

    def find(self, key: tuple[str, _Key], entity: _Key, rate: float) -> TokenBucket:
        """Return a bucket, which is limited by the entity's quota from now on."""
        found = self._used.get(key)
        if found is None:
            self._forget_idle()
            found = self._used[key] = _Used(entity, rate, self._clock, self._window_s)
            if len(self._used) > BUCKETS_MAX:
                self._used.popitem(last=False)
        else:
            found.entity, found.rate = entity, rate
            self._used.move_to_end(key)
        return found.bucket

    def _forget_idle(self) -> None:
        for _ in range(min(_IDLE_AT_ONCE, len(self._used))):
            if not next(iter(self._used.values())).bucket.is_full:
                return
            self._used.popitem(last=False)

    def keep(self, quotas: Mapping[_Key, Quotas]) -> None:
        """Forget what was used of quotas that are no more."""
        for key, used in list(self._used.items()):
            if key[0] not in quotas.get(used.entity, {}):
                del self._used[key]


class Mutations:
    """The partitions that a request creates or deletes, as its client's quota counts them. `bucket`: None without a quota."""

    def __init__(self, bucket: TokenBucket | None, *, is_strict: bool) -> None:
        """`is_strict`: nothing more is done while the rate is exceeded. Else it is, and delays the client."""
        self._bucket = bucket
        self._is_strict = is_strict
        self._is_exceeded = False

    def count(self, partitions: int) -> None:
        """Count partitions that are about to be changed. Raise `ThrottlingQuotaExceededError` if they must not be now."""
        bucket = self._bucket
        if bucket is None:
            return
        if self._is_strict and bucket.lacks(0):
            self._is_exceeded = True
            raise ThrottlingQuotaExceededError()
        bucket.take(partitions)
        self._is_exceeded |= not self._is_strict and bucket.lacks(0)

    @property
    def delay_ms(self) -> int:
        """The time that the client is to pause, 0 unless the request exceeded the rate."""
        return min(self._bucket.delay_ms(), DELAY_MAX_MS) if self._bucket is not None and self._is_exceeded else 0


class ClientQuotas:
    """The quotas of the cluster, and what each client has used here. `config` returns the settings of the image."""

    def __init__(self, config: Callable[[], ConfigOf], clock: Clock) -> None:
        self._config = config
        self._seen: ConfigOf = {}
        self._quotas: dict[_Key, Quotas] = {}
        self._read: dict[ConfigResource, _Read] = {}
        self._are_of_clients = False
        self._clients = _Buckets(clock, WINDOW_S)
        self._addresses = _Buckets(clock, _CONNECTIONS_WINDOW_S)

    @property
    def are_set(self) -> bool:
        """Return whether there are any quotas of users and client ids."""
        if self._config() is not self._seen:
            self._follow()
        return self._are_of_clients

    def _follow(self) -> None:
        self._seen = config = self._config()
        before, self._read = self._read, {}
        for resource, own in config.items():
            if resource.kind is ResourceKind.CLIENT_QUOTA:
                known = before.get(resource)
                if known is None or known.settings != own:
                    known = _Read(own, _key(entity_of(resource)), quotas_of(own))
                self._read[resource] = known
        quotas = {each.key: each.quotas for each in self._read.values()}
        if quotas != self._quotas:
            self._quotas = quotas
            self._are_of_clients = any(address is None for _, _, address in quotas)
            self._clients.keep(quotas)
            self._addresses.keep(quotas)

    def count(self, request: Request[object], user: str) -> int:
        """Count a request that is answered. Return how long its client is to pause, in ms, and write that into the answer."""
        client_id = request.client_id or ""
        delay_ms = max(self.spent(user, client_id, 0), min(request.throttle_ms, DELAY_MAX_MS))
        if request.api_key == PRODUCE_KEY:
            delay_ms = max(delay_ms, self._take(PRODUCER_BYTE_RATE, user, client_id, request.frame_bytes))
            write_produce_throttle_time(request.version, request.answer, delay_ms)
        elif request.api_key == FETCH_KEY:
            size = sum(map(len, request.answer))
            delay_ms = max(delay_ms, self._take(CONSUMER_BYTE_RATE, user, client_id, size))
            write_fetch_throttle_time(request.version, request.answer, delay_ms)
        return delay_ms

    def spent(self, user: str, client_id: str, duration_ns: int) -> int:
        """Count time spent on a client's request. Return how long it is to pause, in ms."""
        return self._take(REQUEST_PERCENTAGE, user, client_id, duration_ns / _NS_PER_PERCENT)

    def mutations(self, request: Request[object], strict_since: int = 0) -> Mutations:
        """Return how to count the partitions that a request changes. Versions before `strict_since` do not know the error."""
        bucket = None
        if self.are_set and not request.context.is_brokers(request):
            client = request.connection.principal.name, request.client_id or ""
            bucket = self._bucket_of_client(CONTROLLER_MUTATION_RATE, *client)
        return Mutations(bucket, is_strict=request.version >= strict_since)

    def admit_connection(self, address: str) -> int:
        """Count a new connection from an address, and return 0; or after how many ms it is to be closed, as one too many."""
        if self._config() is not self._seen:
            self._follow()
        client = None, None, address.partition("%")[0]
        found = self._bucket(self._addresses, CONNECTION_CREATION_RATE, client, (client, (None, None, "")))
        if found is None:
            return 0
        if found.lacks(1):
            return min(found.delay_ms(1), CLOSE_DELAY_MAX_MS)
        found.take(1)
        return 0

    def _take(self, quota: str, user: str, client_id: str, count: float) -> int:
        bucket = self._bucket_of_client(quota, user, client_id)
        if bucket is None:
            return 0
        bucket.take(count)
        return min(bucket.delay_ms(), DELAY_MAX_MS)

    def _bucket_of_client(self, quota: str, user: str, client_id: str) -> TokenBucket | None:
        return self._bucket(self._clients, quota, (user, client_id, None), _nearest_first(user, client_id))

    def _bucket(self, buckets: _Buckets, quota: str, client: _Key, nearest_first: Iterable[_Key]) -> TokenBucket | None:
        for entity in nearest_first:
            rate = self._quotas.get(entity, {}).get(quota)
            if rate is not None:
                break
        else:
            return None
        user, client_id, address = (None if part is None else own for part, own in zip(entity, client, strict=True))
        return buckets.find((quota, (user, client_id, address)), entity, rate)


class _Read(NamedTuple):
    """The quotas of an entity as they were read from its settings: most stay the same when settings change."""

    settings: Mapping[str, str]
    key: _Key
    quotas: Quotas


def _key(entity: Entity) -> _Key:
    address = entity.get(IP)
    return _name(entity, USER), _name(entity, CLIENT_ID), _text_of(address) if address else _name(entity, IP)


def _name(entity: Entity, kind: str) -> str | None:
    return (entity[kind] or "") if kind in entity else None


def _text_of(address: str) -> str:
    """Return an address as connections have theirs."""
    parsed = ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return str(mapped or parsed)


def _nearest_first(user: str, client_id: str) -> Iterator[_Key]:
    """Yield the entities whose quotas may be a client's, in Kafka's order."""
    for name in (user, ""):
        yield name, client_id, None
        yield name, "", None
        yield name, None, None
    yield None, client_id, None
    yield None, "", None
