"""Clients of a simulated broker, and the ledger of what they sent, were answered and read: it refuses what must never be."""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from contract.wire_client import batch, code, decode, encode, values_of
from simulation.network import Link
from simulation.universe import Universe

FETCH_VERSION = 12
FETCH_BY_ID_VERSION = 13
PRODUCE_VERSION = 9
PRODUCE_BY_ID_VERSION = 13
TIMEOUT_S = 60.0
PAUSE_S = 0.05
NONE, OFFSET_OUT_OF_RANGE, TOPIC_ALREADY_EXISTS, INVALID_REPLICA_ASSIGNMENT = 0, 1, 36, 39
OFFSET_NOT_AVAILABLE = 78
UNKNOWN_TOPIC_ID = 100
RETRIED = {3, 5, 6, 7, 14, 15, 16, 19, 20, 38, 41, 51, 56, 74, 75, 78, 88, UNKNOWN_TOPIC_ID}
"""Errors after which a client asks again: not here or not yet, timed out, too few replicas, a step under way, the disk."""
TRANSACTIONAL = 0x10
CONTROL = 0x20

Key = tuple[str, int]


class Violation(AssertionError):
    """Something that must never be."""


def refuse(wrong: bool, *words: object) -> None:
    if wrong:
        raise Violation(" ".join(map(str, words)))


@dataclass
class Written:
    """What is known of a partition."""

    sent: dict[bytes, tuple[str, int, Transaction | None]] = field(default_factory=dict)
    """By value: the producer, its number there and its transaction."""
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    seen: dict[int, bytes] = field(default_factory=dict)
    start: int = 0
    high_watermark: int = 0
    last_stable_offset: int = 0
    followers_high_watermark: int = 0
    """The largest that a follower has told. It is at most the leader's, which clients may not have seen yet."""
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(eq=False)
class Transaction:
    """state: open, ending (a commit was asked for), committed, aborted or unknown."""

    name: str
    state: str = "open"
    values: list[tuple[Key, bytes]] = field(default_factory=list)
    offset: int | None = None
    """The offset that it commits for its group."""


class Ledger:
    """All that clients know together."""

    def __init__(self, universe: Universe, *, leaders_change: bool = False) -> None:
        """`leaders_change`: as in Kafka, a new leader may have deleted less."""
        self.universe = universe
        self.leaders_change = leaders_change
        self.written: dict[Key, Written] = defaultdict(Written)
        self.transactions: list[Transaction] = []

    def offsets(self, key: Key) -> tuple[int, int, int]:
        """Return the log start, the high watermark and the last stable offset that are known."""
        at = self.written[key]
        return at.start, at.high_watermark, at.last_stable_offset

    def observe(self, key: Key, partition: Any, known: tuple[int, int, int]) -> None:
        """Take in an answer of Fetch. `known`: the offsets that were known when it was asked, as answers overtake each other."""
        at, found = self.written[key], _offsets(partition)
        start, high, stable = found
        refuse(start < known[0] and not self.leaders_change, key, "the log start went back from", known[0], "to", start)
        at.start = max(at.start, start)
        if not _knows_watermark(partition):
            return
        for name, before, now in zip(("the high watermark", "the LSO"), known[1:], found[1:], strict=True):
            refuse(now < before, key, name, "went back from", before, "to", now)
        refuse(not start <= stable <= high, key, "offsets out of order", start, stable, high)
        at.high_watermark = max(at.high_watermark, high)
        at.last_stable_offset = max(at.last_stable_offset, stable)

    def read(self, key: Key, offset: int, value: bytes, *, committed: bool) -> None:
        at = self.written[key]
        known = at.seen.setdefault(offset, value)
        refuse(known != value, key, "offset", offset, "had", known, "and has", value)
        refuse(value not in at.sent, key, "offset", offset, "has what was never sent:", value)
        transaction = at.sent[value][2]
        if committed and transaction is not None:
            refuse(transaction.state in ("open", "aborted"), key, value, "is seen but", transaction)

    def check_all(self, key: Key, records: dict[int, bytes], *, committed: bool) -> None:
        """Check all records of a partition, read at the end."""
        at = self.written[key]
        refuse(at.followers_high_watermark > at.high_watermark, key, "a follower told", at.followers_high_watermark)
        vanished = [each for each in at.seen if each >= at.start and each not in records]
        refuse(bool(vanished) and not committed, key, "what was seen is gone:", vanished[:5])
        refuse(len(set(records.values())) < len(records), key, "a record is there twice")
        missing = {
            offset: value
            for offset, value in at.acknowledged.items()
            if offset >= at.start and records.get(offset) != value and _is_visible(at.sent[value][2], committed)
        }
        refuse(bool(missing), key, "acknowledged records are lost:", dict(list(missing.items())[:5]))
        if committed:
            there = set(records.values())
            for value, (_, _, transaction) in at.sent.items():
                gone = value in at.acknowledged.values() and at.start > 0
                if transaction is not None and transaction.state == "committed" and not gone:
                    refuse(value not in there, key, value, "is missing of", transaction)
        else:
            last: dict[str, int] = {}
            for offset, value in sorted(records.items()):
                if offset < at.start:
                    continue  # deleted since it was read
                producer, number, transaction = at.sent[value]
                if transaction is not None:
                    continue
                expected = last.get(producer, number - 1 if at.start else -1) + 1
                refuse(number != expected, key, value, "has number", number, "where", expected, "was to come")
                last[producer] = number

    def check_transactions(self, records: dict[Key, dict[int, bytes]]) -> None:
        """Check that each transaction is seen whole or not at all."""
        there = {key: set(of.values()) for key, of in records.items()}
        for transaction in self.transactions:
            seen = [value in there[key] for key, value in transaction.values if not self.written[key].start]
            refuse(any(seen) and not all(seen), transaction, "is torn:", seen)

    def check_versions(self, versions: list[dict[Key, int]], records: dict[Key, dict[int, bytes]]) -> None:
        """Check that each version shows each transaction whole or not at all. versions: last stable offsets."""
        offsets = {(key, value): offset for key, of in records.items() for offset, value in of.items()}
        for transaction in self.transactions:
            found = [
                (key, offsets.get((key, value))) for key, value in transaction.values if not self.written[key].start
            ]
            for version, stable in enumerate(versions):
                shown = [offset < stable.get(key, 0) for key, offset in found if offset is not None]
                refuse(any(shown) and not all(shown), "version", version, "shows a part of", transaction, found, stable)


def _is_visible(transaction: Transaction | None, committed: bool) -> bool:
    return not committed or transaction is None or transaction.state == "committed"


def _knows_watermark(partition: Any) -> bool:
    """Return whether an answer of Fetch has the watermark, which a new leader does not know at once, and the LSO."""
    knows = partition.high_watermark >= 0
    refuse(knows != (partition.last_stable_offset >= 0), "one of the high watermark and the LSO is unknown:", partition)
    return knows


def _offsets(partition: Any) -> tuple[int, int, int]:
    return partition.log_start_offset, partition.high_watermark, partition.last_stable_offset


class Client:
    """A connection to each broker, made anew when it is lost. One request after the other, or several with `send`."""

    def __init__(self, universe: Universe, name: str) -> None:
        self.universe = universe
        self.name = name
        self._sessions: dict[int, Session] = {}

    def send(self, api: str, version: int, to: int | None = None, **values: Any) -> asyncio.Future[Any]:
        """Send a request to a broker, any if None. The answer is a future, which fails with `ConnectionError`, as this does."""
        return self.send_frame(api, version, encode(api, version, 0, values), to)

    def send_frame(self, api: str, version: int, frame: bytes, to: int | None = None) -> asyncio.Future[Any]:
        """As `send`, for a request that is encoded already; it gets the next correlation id."""
        to = self.universe.any_broker() if to is None else to
        if to not in self._sessions:
            self._sessions[to] = Session(self.universe, self.name, to)
        return self._sessions[to].send(api, version, frame)

    async def call(self, api: str, version: int, to: int | None = None, **values: Any) -> Any:
        """Return the answer. Raise `ConnectionError`."""
        return await self.answer(api, self.send(api, version, to, **values))

    async def answer(self, api: str, answer: asyncio.Future[Any]) -> Any:
        """Wait for it. Raise `ConnectionError`."""
        try:
            return await asyncio.wait_for(answer, TIMEOUT_S)
        except TimeoutError:
            raise Violation(f"{self.name}: {api} was not answered") from None

    async def insist(
        self,
        api: str,
        version: int,
        error_of: Any,
        to: Callable[[], int] | None = None,
        coordinator: Coordinator | None = None,
        **values: Any,
    ) -> Any:
        """Return the answer, asking again after errors that pass and on new connections. `to` is asked for the broker each time."""
        began = self.universe.loop.time()
        while True:
            try:
                broker = to() if to is not None else None
                if coordinator is not None:
                    broker = await self.find(coordinator)
                answer = await self.call(api, version, broker, **values)
                if error_of(answer) not in RETRIED:
                    return answer
                why = str(error_of(answer))
            except ConnectionError as error:
                why = str(error)
            refuse(self.universe.loop.time() - began > 3 * TIMEOUT_S, self.name, api, "does not succeed:", why)
            await asyncio.sleep(PAUSE_S)

    async def find(self, coordinator: Coordinator) -> int:
        """Return the broker that coordinates a group or transactional id. Raise `ConnectionError`."""
        found = await self.call("FindCoordinator", 3, key=coordinator.key, key_type=coordinator.kind)
        if code(found.error_code) != NONE:
            raise ConnectionError(f"no coordinator: {code(found.error_code)}")
        return int(found.node_id)

    def hang_up(self) -> None:
        for session in self._sessions.values():
            session.hang_up()


class Coordinator(NamedTuple):
    """The coordinator of a group (kind 0) or transactional id (1)."""

    key: str
    kind: int


class Session:
    """One connection to one broker at a time."""

    def __init__(self, universe: Universe, name: str, broker_id: int) -> None:
        self._universe = universe
        self._name = name
        self._broker_id = broker_id
        self._link: Link | None = None
        self._number = 0
        self._buffer = bytearray()
        self._waiting: deque[tuple[str, int, int, asyncio.Future[Any]]] = deque()

    def send(self, api: str, version: int, frame: bytes) -> asyncio.Future[Any]:
        if self._link is None:
            self._buffer.clear()
            holder: list[Link] = []
            self._link = self._universe.connect(self._broker_id, lambda data: self._received(holder[0], data))
            holder.append(self._link)
        self._number += 1
        answer = self._universe.loop.create_future()
        self._waiting.append((api, version, self._number, answer))
        self._link.send(frame[:8] + struct.pack(">i", self._number) + frame[12:])
        return answer

    def _received(self, link: Link, data: bytes | None) -> None:
        if link is not self._link:
            return
        if data is None:
            self._link = None
            while self._waiting:
                *_, answer = self._waiting.popleft()
                if not answer.done():
                    answer.set_exception(ConnectionError("the broker closed the connection"))
                    answer.exception()
            return
        self._buffer += data
        while len(self._buffer) >= 4:
            (size,) = struct.unpack_from(">i", self._buffer)
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            api, version, number, answer = self._waiting.popleft()
            body = decode(api, version, number, frame)
            self._universe.trace.add(self._name, self._broker_id, api, version, len(frame))
            if not answer.done():
                answer.set_result(body)

    def hang_up(self) -> None:
        if self._link is not None:
            self._link.hang_up()


def batches_of(data: bytes | None) -> Iterator[tuple[int, int, int, list[tuple[int, bytes]]]]:
    """(base offset, attributes, producer id, records) of each whole batch."""
    position, data = 0, data or b""
    while position + 61 <= len(data):
        base_offset, length = struct.unpack_from(">qi", data, position)
        end = position + 12 + length
        if end > len(data):
            return
        (attributes,) = struct.unpack_from(">h", data, position + 21)
        (producer_id,) = struct.unpack_from(">q", data, position + 43)
        records = [] if attributes & CONTROL else values_of(data[position:end])
        yield base_offset, attributes, producer_id, [(offset, value or b"") for offset, value in records]
        position = end


@lru_cache(10_000)
def fetch_frame(
    key: Key, offset: int, leader_epoch: int, *, committed: bool, topic_id: UUID | None = None
) -> tuple[int, bytes]:
    """The version and frame of a Fetch for one partition, in the leader epoch that the client knows (-1: none).

    With a `topic_id` it is of that topic, whatever topic has the name by now. Runs send the same frames often.
    """
    topic, index = key
    version = FETCH_VERSION if topic_id is None else FETCH_BY_ID_VERSION
    values = {
        "partition": index,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 2_000,
    }
    fetch = {
        "max_wait": 20,
        "min_bytes": 1,
        "max_bytes": 10_000,
        "isolation_level": int(committed),
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{**({"topic": topic} if topic_id is None else {"topic_id": topic_id}), "partitions": [values]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return version, encode("Fetch", version, 0, fetch)


class Reader:
    """Reads one partition from its start, with either isolation level."""

    def __init__(self, ledger: Ledger, key: Key, *, committed: bool, topic_id: UUID | None = None) -> None:
        """`topic_id`: of the topic, if another may have its name before all brokers know."""
        self._ledger = ledger
        self._key = key
        self._topic_id = topic_id
        self._committed = committed
        self.client = Client(ledger.universe, f"reader of {key[0]}-{key[1]} {'committed' if committed else 'all'}")
        self.offset = 0
        self._end = 0
        self.records: dict[int, bytes] = {}

    async def poll(self) -> bool:
        """Fetch once. Return whether the end was reached. Raise `ConnectionError`.

        As Kafka's consumer asks, with the leader epoch: a follower that is to lead, and does not know it yet, refuses. Without one
        it answers with the watermark that it knows, which may be less than the last leader has told (KIP-320, KIP-392).
        """
        known = self._ledger.offsets(self._key)
        epoch = self._ledger.universe.leader_epoch(*self._key)
        version, request = fetch_frame(
            self._key, self.offset, epoch, committed=self._committed, topic_id=self._topic_id
        )
        answer = await self.client.answer("Fetch", self.client.send_frame("Fetch", version, request, self._leader()))
        partition = answer.responses[0].partitions[0]
        error = code(partition.error_code)
        if error == OFFSET_OUT_OF_RANGE:
            at = self._ledger.written[self._key]
            refuse(self.offset > partition.log_start_offset >= 0, self._key, "offset", self.offset, "is out of range")
            self.offset = max(at.start, await self._earliest())
            return False
        if error:
            refuse(error not in RETRIED, self._key, "fetch is refused:", error)
            await asyncio.sleep(PAUSE_S)
            return False
        self._ledger.observe(self._key, partition, known)
        self._take(partition)
        if not _knows_watermark(partition):
            return False
        self._end = partition.high_watermark
        return self.offset >= self._readable_end(partition)

    def _leader(self) -> int:
        return self._ledger.universe.leader(*self._key)

    def _readable_end(self, partition: Any) -> int:
        """Return the end of what the reader may see, -1 if the broker does not know it."""
        return int(partition.last_stable_offset if self._committed else partition.high_watermark)

    async def _earliest(self) -> int:
        topic, index = self._key
        asked = [{"partition_index": index, "timestamp": -2}]
        topics = [{"name": topic, "partitions": asked}]
        answer = await self.client.call("ListOffsets", 6, self._leader(), replica_id=-1, topics=topics)
        return int(answer.topics[0].partitions[0].offset)

    def _take(self, partition: Any) -> None:
        aborted = sorted((each.first_offset, each.producer_id) for each in partition.aborted_transactions or ())
        open_aborts: set[int] = set()
        end = self._readable_end(partition)
        for base_offset, attributes, producer_id, records in batches_of(partition.records):
            while aborted and aborted[0][0] <= base_offset:
                open_aborts.add(aborted.pop(0)[1])
            if attributes & CONTROL:
                open_aborts.discard(producer_id)
                self.offset = max(self.offset, base_offset + 1)
            for offset, value in records:
                if offset < self.offset:
                    continue
                refuse(0 <= end <= offset, self._key, "offset", offset, "is served above", end)
                hidden = self._committed and attributes & TRANSACTIONAL and producer_id in open_aborts
                if not hidden:
                    self._ledger.read(self._key, offset, value, committed=self._committed)
                    self.records[offset] = value
                refuse(offset > self.offset, self._key, "offset", self.offset, "is passed over for", offset)
                self.offset = offset + 1

    async def poll_follower(self, chance: Random) -> None:
        """Fetch once from a replica that follows (KIP-392), and from the leader where that one is not so far. The position never
        goes back. Raise `ConnectionError`."""
        before = self.offset
        await self._poll_follower(chance)
        refuse(self.offset < before, self._key, "goes back from", before, "to", self.offset)

    async def _poll_follower(self, chance: Random) -> None:
        universe, at = self._ledger.universe, self._ledger.written[self._key]
        registered = universe.registration(*self._key)
        others = [] if registered is None else [each for each in registered.replicas if each != registered.leader]
        if not others:
            return
        epoch = universe.leader_epoch(*self._key)
        version, request = fetch_frame(self._key, self.offset, epoch, committed=self._committed)
        sent = self.client.send_frame("Fetch", version, request, chance.choice(others))
        partition = (await self.client.answer("Fetch", sent)).responses[0].partitions[0]
        error = code(partition.error_code)
        if error in (OFFSET_OUT_OF_RANGE, OFFSET_NOT_AVAILABLE):
            await self.poll()
        elif error:
            refuse(error not in RETRIED, self._key, "a follower refuses:", error)
        else:
            led = universe.high_watermark(*self._key, epoch)
            told = partition.high_watermark
            refuse(led is not None and told > led, self._key, "a follower told", told, "and its leader has", led)
            at.followers_high_watermark = max(at.followers_high_watermark, told)
            self._take(partition)

    async def read_to_end(self) -> dict[int, bytes]:
        """Return all records, once the broker answers and no transaction is open."""
        began = self._ledger.universe.loop.time()
        while True:
            try:
                if await self.poll():
                    if self.offset >= self._end:
                        return self.records
                    await asyncio.sleep(PAUSE_S)  # until a coordinator has ended the transaction
            except ConnectionError:
                await asyncio.sleep(PAUSE_S)
            refuse(self._ledger.universe.loop.time() - began > 3 * TIMEOUT_S, self._key, "cannot be read to its end")


class Producer:
    """An idempotent producer with several batches in flight, sent again in order until each is acknowledged."""

    def __init__(
        self, ledger: Ledger, name: str, keys: list[Key], acks: int = -1, topic_id: UUID | None = None
    ) -> None:
        """`topic_id`: of the keys' topic, if another may have its name before all brokers know."""
        self._ledger = ledger
        self.name = name
        self._keys = keys
        self._acks = acks
        self._topic_id = topic_id
        self._version = PRODUCE_VERSION if topic_id is None else PRODUCE_BY_ID_VERSION
        self._random = ledger.universe.random
        self.client = Client(ledger.universe, name)
        self._sequences: dict[Key, int] = defaultdict(int)
        self.producer_id = -1
        self._pending: deque[tuple[Key, int, list[bytes]]] = deque()
        self._known: set[Key] = set()
        """The partitions of which a batch was acknowledged."""

    async def run(self, batches: int) -> None:
        """Send so many batches."""
        answer = await self.client.insist(
            "InitProducerId",
            4,
            lambda answer: code(answer.error_code),
            transactional_id=None,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        refuse(code(answer.error_code) != NONE, self.name, "InitProducerId", answer)
        self.producer_id = answer.producer_id
        while batches > 0 or self._pending:
            while batches > 0 and len(self._pending) < 5 and self._random.random() < 0.8:
                self._pending.append(self._next())
                batches -= 1
            try:
                await self._deliver()
            except ConnectionError:
                await asyncio.sleep(PAUSE_S)
            if self._random.random() < 0.3:
                await asyncio.sleep(self._random.random() * 0.2)

    def _next(self) -> tuple[Key, int, list[bytes]]:
        key = self._random.choice(self._keys)
        sequence = self._sequences[key]
        values = [f"{self.name} {sequence + number}".encode() for number in range(self._random.randrange(1, 5))]
        for number, value in enumerate(values):
            self._ledger.written[key].sent[value] = (self.name, sequence + number, None)
        self._sequences[key] += len(values)
        return key, sequence, values

    async def _deliver(self) -> None:
        """Send all that is pending at once, and keep what was not acknowledged.

        To a partition that knows nothing of the producer only the first batch goes: were it refused, the second one would be
        taken as the producer's first, and the first one be out of order ever after.
        """
        pending: list[tuple[Key, int, list[bytes]]] = []
        for each in self._pending:
            if each[0] in self._known or all(each[0] != key for key, _, _ in pending):
                pending.append(each)
        answers = [
            self.client.send(
                "Produce",
                self._version,
                self._ledger.universe.leader(*key),
                transactional_id=None,
                acks=self._acks,
                timeout=10_000,
                topic_data=[
                    {
                        **({"name": key[0]} if self._topic_id is None else {"topic_id": self._topic_id}),
                        "partition_data": [{"index": key[1], "records": self._batch(sequence, values)}],
                    }
                ],
            )
            for key, sequence, values in pending
        ]
        failed = {}
        lost = False
        for (key, sequence, values), future in zip(pending, answers, strict=True):
            try:
                answer = (await asyncio.wait_for(future, TIMEOUT_S)).responses[0].partition_responses[0]
            except TimeoutError:
                raise Violation(f"{self.name}: Produce was not answered") from None
            except ConnectionError:
                lost = True
                continue
            error = code(answer.error_code)
            if error == NONE or (error == 46 and answer.base_offset >= 0):
                acknowledge(self._ledger, key, answer.base_offset, values)
                self._pending.remove((key, sequence, values))
                self._known.add(key)
            else:
                # After a failed batch the next ones of its partition are out of order until it is sent again.
                refuse(error not in RETRIED and not (error == 45 and key in failed), self.name, key, sequence, error)
                failed[key] = error
        if lost or failed:
            await asyncio.sleep(PAUSE_S)

    def _batch(self, sequence: int, values: list[bytes]) -> bytes:
        now_ms = self._ledger.universe.clock.now_ms()
        return batch(
            [(None, value) for value in values],
            timestamp=now_ms,
            producer_id=self.producer_id,
            epoch=0,
            sequence=sequence,
        )


def acknowledge(ledger: Ledger, key: Key, base_offset: int, values: list[bytes]) -> None:
    at = ledger.written[key]
    if base_offset < 0:
        return  # a batch sent again long after: its offset is no longer known
    for offset, value in enumerate(values, base_offset):
        known = at.acknowledged.setdefault(offset, value)
        refuse(known != value, key, "offset", offset, "was acknowledged for", known, "and", value)


class TransactionalProducer:
    """Transactions over several partitions, some with an offset for its group, each committed or aborted."""

    def __init__(self, ledger: Ledger, name: str, keys: list[Key]) -> None:
        self._ledger = ledger
        self.name = name
        self._keys = keys
        self._random = ledger.universe.random
        self.client = Client(ledger.universe, name)
        self._producer_id = self._epoch = -1
        self._sequences: dict[Key, int] = {}
        self._is_fenced = True
        self.group = f"group of {name}"
        self._coordinator = Coordinator(name, 1)

    async def run(self, transactions: int) -> None:
        for number in range(transactions):
            if self._is_fenced:
                await self._init()
            transaction = Transaction(f"{self.name} {number}")
            self._ledger.transactions.append(transaction)
            try:
                await self._write(transaction)
                await self._end(transaction, commit=self._random.random() < 0.7)
            except (ConnectionError, _Refused):
                if transaction.state == "open":
                    transaction.state = "aborted"  # nobody asked for a commit, and nobody will
                self._is_fenced = True
            await asyncio.sleep(self._random.random() * 0.1)
        if self._is_fenced:
            await self._init()
        await self._check_offset()

    async def _init(self) -> None:
        answer = await self.client.insist(
            "InitProducerId",
            4,
            lambda answer: code(answer.error_code),
            coordinator=self._coordinator,
            transactional_id=self.name,
            transaction_timeout=30_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        refuse(code(answer.error_code) != NONE, self.name, "InitProducerId", answer)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self._is_fenced = False

    async def _write(self, transaction: Transaction) -> None:
        for step in range(self._random.randrange(1, 4)):
            key = self._random.choice(self._keys)
            values = [f"{transaction.name} {step} {each}".encode() for each in range(self._random.randrange(1, 4))]
            added = await self.client.insist(
                "AddPartitionsToTxn",
                3,
                lambda answer: code(
                    answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
                ),
                coordinator=self._coordinator,
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self._producer_id,
                v3_and_below_producer_epoch=self._epoch,
                v3_and_below_topics=[{"name": key[0], "partitions": [key[1]]}],
            )
            _require(code(added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code))
            sequence = self._sequences.get(key, 0)
            for number, value in enumerate(values):
                self._ledger.written[key].sent[value] = (self.name, sequence + number, transaction)
            records = batch(
                [(None, value) for value in values],
                timestamp=self._ledger.universe.clock.now_ms(),
                attributes=TRANSACTIONAL,
                producer_id=self._producer_id,
                epoch=self._epoch,
                sequence=sequence,
            )
            answer = await self.client.insist(
                "Produce",
                9,
                lambda answer: code(answer.responses[0].partition_responses[0].error_code),
                to=partial(self._ledger.universe.leader, *key),
                transactional_id=self.name,
                acks=-1,
                timeout=10_000,
                topic_data=[{"name": key[0], "partition_data": [{"index": key[1], "records": records}]}],
            )
            written = answer.responses[0].partition_responses[0]
            _require(code(written.error_code))
            self._sequences[key] = sequence + len(values)
            transaction.values += [(key, value) for value in values]
            acknowledge(self._ledger, key, written.base_offset, values)
        if self._random.random() < 0.5:
            await self._add_offset(transaction)

    async def _add_offset(self, transaction: Transaction) -> None:
        who = {
            "transactional_id": self.name,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
            "group_id": self.group,
        }
        answer = await self.client.insist(
            "AddOffsetsToTxn", 3, lambda answer: code(answer.error_code), coordinator=self._coordinator, **who
        )
        _require(code(answer.error_code))
        offset = len(self._ledger.transactions)
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        answer = await self.client.insist(
            "TxnOffsetCommit",
            3,
            lambda answer: code(answer.topics[0].partitions[0].error_code),
            coordinator=Coordinator(self.group, 0),
            **who,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": self._keys[0][0], "partitions": [partition]}],
        )
        _require(code(answer.topics[0].partitions[0].error_code))
        transaction.offset = offset

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.state = "ending" if commit else "aborted"
        answer = await self.client.insist(
            "EndTxn",
            3,
            lambda answer: code(answer.error_code),
            coordinator=self._coordinator,
            transactional_id=self.name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        if code(answer.error_code) != NONE:
            transaction.state = "unknown" if commit else "aborted"
            raise _Refused(code(answer.error_code))
        transaction.state = "committed" if commit else "aborted"

    async def _check_offset(self) -> None:
        """Check that the group is where the last transaction that committed an offset has put it."""
        mine = [each for each in self._ledger.transactions if each.name.rpartition(" ")[0] == self.name]
        possible: set[int] = {-1}
        for each in mine:
            if each.offset is not None and each.state == "committed":
                possible = {each.offset}
            elif each.offset is not None and each.state == "unknown":
                possible.add(each.offset)
        found = await committed_offset(self.client, self.group, (self._keys[0][0], 0))
        refuse(found not in possible, self.group, "is at", found, "and not at", possible)


class _Refused(Exception):
    """An error that ends a transaction."""


def _require(error: int) -> None:
    if error != NONE:
        raise _Refused(error)


async def committed_offset(client: Client, group: str, key: Key) -> int:
    """Return the group's committed offset of a partition, -1 for none."""
    answer = await client.insist(
        "OffsetFetch",
        7,
        lambda answer: code(answer.error_code) or code(answer.topics[0].partitions[0].error_code),
        coordinator=Coordinator(group, 0),
        group_id=group,
        topics=[{"name": key[0], "partition_indexes": [key[1]]}],
        require_stable=True,
    )
    refuse(code(answer.error_code) != NONE, group, "OffsetFetch", answer)
    return int(answer.topics[0].partitions[0].committed_offset)


class Committer:
    """A consumer without a group's assignment that commits ever higher offsets: none that was acknowledged is lost."""

    def __init__(self, ledger: Ledger, group: str, key: Key) -> None:
        self._universe = ledger.universe
        self._group = group
        self._key = key
        self.client = Client(ledger.universe, group)
        self._asked = self._acknowledged = -1

    async def run(self, commits: int) -> None:
        await self.check()
        for _ in range(commits):
            self._asked += self._universe.random.randrange(1, 10)
            try:
                answer = await self.client.call(
                    "OffsetCommit",
                    8,
                    await self.client.find(Coordinator(self._group, 0)),
                    group_id=self._group,
                    generation_id_or_member_epoch=-1,
                    member_id="",
                    group_instance_id=None,
                    topics=[
                        {
                            "name": self._key[0],
                            "partitions": [
                                {
                                    "partition_index": self._key[1],
                                    "committed_offset": self._asked,
                                    "committed_leader_epoch": -1,
                                    "committed_metadata": "",
                                }
                            ],
                        }
                    ],
                )
                error = code(answer.topics[0].partitions[0].error_code)
                refuse(error != NONE and error not in RETRIED, self._group, "OffsetCommit", error)
                if error == NONE:
                    self._acknowledged = self._asked
            except ConnectionError:
                pass
            if self._universe.random.random() < 0.3:
                await self.check()
            await asyncio.sleep(self._universe.random.random() * 0.2)
        await self.check()

    async def check(self) -> None:
        found = await committed_offset(self.client, self._group, self._key)
        refuse(
            not self._acknowledged <= found <= self._asked,
            self._group,
            "is at",
            found,
            "not in",
            self._acknowledged,
            "to",
            self._asked,
        )
        self._acknowledged = found


class Administrator:
    """Deletes records, and a topic that comes again under its name: nothing of the one before is ever seen in it."""

    def __init__(self, ledger: Ledger, name: str, kept: list[Key], replicas: int = 1) -> None:
        self._ledger = ledger
        self._random = ledger.universe.random
        self.name = name
        self._kept = kept
        self._replicas = replicas
        self.client = Client(ledger.universe, "administrator")

    async def run(self, steps: int) -> None:
        for number in range(steps):
            chance = self._random.random()
            if chance < 0.3:
                await self._delete_records()
            elif chance < 0.6 and len(self._ledger.universe.machines) > 1:
                await self._reassign()
            else:
                await self._live(number)
            await asyncio.sleep(self._random.random() * 0.2)

    async def create(self, name: str, partitions: int) -> None:
        """Create a topic, or find it created by a request whose answer was lost."""
        size = self._random.choice((2_000, 10_000, 1_000_000))
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": self._replicas,
            "assignments": [],
            "configs": [
                {"name": "internal.segment.bytes", "value": str(size)},
                {"name": "min.insync.replicas", "value": str((self._replicas + 1) // 2)},
            ],
        }
        answer = await self.client.insist(
            "CreateTopics",
            7,
            lambda answer: code(answer.topics[0].error_code),
            topics=[topic],
            timeout=20_000,
            validate_only=False,
        )
        error = code(answer.topics[0].error_code)
        refuse(error not in (NONE, TOPIC_ALREADY_EXISTS), "topic not created", answer)

    async def _live(self, number: int) -> None:
        """Create the topic, write to it, read it and delete it.

        By its id: a broker that is cut off leads the topic that had the name before, and takes what is written to the name.
        """
        await self.create(self.name, 1)
        key = (self.name, 0)
        topic_id = self._ledger.universe.topic_id(self.name)
        if topic_id is None:
            raise Violation(f"{self.name} is gone once it is created")
        written = self._ledger.written[key] = Written()
        producer = Producer(self._ledger, f"life {number} of {self.name}", [key], topic_id=topic_id)
        await producer.run(self._random.randrange(4))
        records = await Reader(self._ledger, key, committed=False, topic_id=topic_id).read_to_end()
        self._ledger.check_all(key, records, committed=False)
        refuse(len(records) != len(written.sent), key, "has", len(records), "records of", len(written.sent))
        await self._delete(topic_id)

    async def _delete(self, topic_id: UUID) -> None:
        """Delete the topic by its id: a request whose answer was lost may come late, and find the next topic of the name."""
        refuse(self._ledger.universe.topic_id(self.name) != topic_id, self.name, "is gone before it is deleted")
        topics = [{"name": None, "topic_id": topic_id}]
        while True:
            try:
                answer = await self.client.call("DeleteTopics", 6, topics=topics, timeout=20_000)
                error = code(answer.responses[0].error_code)
                if self._ledger.universe.topic_id(self.name) != topic_id:
                    return
                # a controller that does not know yet that another one is elected may not know the topic
                refuse(error not in (UNKNOWN_TOPIC_ID, *RETRIED), "topic not deleted", answer)
            except ConnectionError:
                pass
            await asyncio.sleep(PAUSE_S)

    async def _reassign(self) -> None:
        """Give a partition other replicas, or others first. It goes on behind the answer."""
        key, machines = self._random.choice(self._kept), len(self._ledger.universe.machines)
        count = self._replicas if self._replicas == 1 else self._random.choice((2, 3))
        target = {"partition_index": key[1], "replicas": self._random.sample(range(machines), count)}
        answer = await self.client.insist(
            "AlterPartitionReassignments",
            0,
            lambda answer: code(answer.error_code) or code(answer.responses[0].partitions[0].error_code),
            timeout=10_000,
            topics=[{"name": key[0], "partitions": [target]}],
        )
        error = code(answer.error_code) or code(answer.responses[0].partitions[0].error_code)
        refuse(error not in (NONE, INVALID_REPLICA_ASSIGNMENT), key, "is not reassigned:", answer)

    async def _delete_records(self) -> None:
        key = self._random.choice(self._kept)
        at = self._ledger.written[key]
        offset = at.start + self._random.randrange(at.high_watermark - at.start + 1)
        answer = await self.client.insist(
            "DeleteRecords",
            2,
            lambda answer: code(answer.topics[0].partitions[0].error_code),
            to=partial(self._ledger.universe.leader, *key),
            topics=[{"name": key[0], "partitions": [{"partition_index": key[1], "offset": offset}]}],
            timeout=10_000,
        )
        deleted = answer.topics[0].partitions[0]
        refuse(code(deleted.error_code) not in (NONE, OFFSET_OUT_OF_RANGE), key, "DeleteRecords", answer)
        if code(deleted.error_code) == NONE:
            refuse(deleted.low_watermark < offset, key, "starts at", deleted.low_watermark, "not at", offset)
            at.start = max(at.start, deleted.low_watermark)
