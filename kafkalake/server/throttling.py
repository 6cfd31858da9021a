"""Client quotas are enforced: a client that exceeds one is answered and then, as in Kafka, not read from for a while (KIP-219).

The answers to Produce and Fetch say for how long (`throttle_time_ms`). Bytes that were produced and fetched are counted, and for
`request_percentage` the time that the event loop spends on a request before it waits for anything; 100 is all of that one thread. A
quota is that of the nearest entity: user and client id, user, client id, each by name before the default. Clients share a bucket as
their entity says. Other brokers are exempt.

*Different from Kafka:* a consumer over its quota gets its records before the pause, not an empty answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from kafkalake.broker.admin.client_quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Entity,
    Quotas,
    entities,
)
from kafkalake.broker.partitions.token_bucket import TokenBucket
from kafkalake.clock import Clock
from kafkalake.cluster.image import ConfigOf
from kafkalake.server.request import Request
from kafkalake.wire.produce_request import API_KEY as PRODUCE_KEY
from kafkalake.wire.throttle_time import write_fetch_throttle_time, write_produce_throttle_time

DELAY_MAX_MS = 60_000
"""The longest pause at once. What is left of a debt delays the next request."""
FETCH_KEY = 1
BUCKETS_MAX = 10_000
"""The most clients that are counted. The one that was silent longest is forgotten first."""
_NS_PER_PERCENT = 10_000_000

_Key = tuple[str | None, str | None]
"""User and client id: "" is the default, None is not part of the entity."""


class ClientQuotas:
    """The quotas of the cluster, and what each client has used here. `config` returns the settings of the image."""

    def __init__(self, config: Callable[[], ConfigOf], clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._seen: ConfigOf = {}
        self._quotas: dict[_Key, Quotas] = {}
        self._buckets: OrderedDict[tuple[str, _Key], TokenBucket] = OrderedDict()

    @property
    def are_set(self) -> bool:
        """Return whether there are any quotas."""
        config = self._config()
        if config is not self._seen:
            self._seen = config
            quotas = {(_name(entity, USER), _name(entity, CLIENT_ID)): each for entity, each in entities(config)}
            if quotas != self._quotas:
                self._quotas = quotas
                self._buckets.clear()
        return bool(self._quotas)

    def count(self, request: Request[object], user: str) -> int:
        """Count a request that is answered. Return how long its client is to pause, in ms, and write that into the answer."""
        client_id = request.client_id or ""
        delay_ms = self.spent(user, client_id, 0)
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

    def _take(self, quota: str, user: str, client_id: str, count: float) -> int:
        bucket = self._bucket(quota, user, client_id)
        if bucket is None:
            return 0
        bucket.take(count)
        return min(bucket.delay_ms(), DELAY_MAX_MS)

    def _bucket(self, quota: str, user: str, client_id: str) -> TokenBucket | None:
        for entity in _nearest_first(user, client_id):
            rate = self._quotas.get(entity, {}).get(quota)
            if rate is not None:
                break
        else:
            return None
        shared = (None if entity[0] is None else user, None if entity[1] is None else client_id)
        found = self._buckets.get((quota, shared))
        if found is None:
            found = self._buckets[quota, shared] = TokenBucket(self._clock, lambda: rate)
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end((quota, shared))
        return found


def _name(entity: Entity, kind: str) -> str | None:
    return (entity[kind] or "") if kind in entity else None


def _nearest_first(user: str, client_id: str) -> Iterator[_Key]:
    """Yield the entities whose quotas may be a client's, in Kafka's order."""
    for name in (user, ""):
        yield name, client_id
        yield name, ""
        yield name, None
    yield None, client_id
    yield None, ""
