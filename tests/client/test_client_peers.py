"""Requests between brokers: what waits is answered or fails, whatever the other side does, and then life goes on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from wire.message_codec import RequestHeader, read_header

from kafkalake.client import exchange, peer_connection
from kafkalake.client.address import Address
from kafkalake.client.peers import Channel, ConnectedPeers
from kafkalake.client.requests import API_VERSIONS, DESCRIBE_CLUSTER, METADATA, OFFSET_DELETE
from kafkalake.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    ConnectionLostError,
    ResponseTimedOutError,
    UnsupportedVersionError,
)
from kafkalake.wire.messages.cluster import (
    ApiVersion,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
)
from kafkalake.wire.messages.codec import encode_response
from kafkalake.wire.messages.offsets import OffsetDeleteRequest

Scenario = Callable[[], Coroutine[Any, Any, None]]
OFFERED = [
    ApiVersion(api_key=api.key, min_version=api.lowest, max_version=api.highest)
    for api in (API_VERSIONS, METADATA, DESCRIBE_CLUSTER)
]
BROKER = 7


class ScriptedBroker:
    """A server that negotiates versions, and then does with each request what `script` does."""

    def __init__(self) -> None:
        self.script: Callable[[RequestHeader, asyncio.StreamWriter], Awaitable[None]] = answer
        self.address: Address | None = None
        self.accepted = 0
        self.asked: list[RequestHeader] = []
        self.writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.writers.append(writer)
        while True:
            try:
                size = int.from_bytes(await reader.readexactly(4), "big")
                header = read_header(await reader.readexactly(size))
            except (asyncio.IncompleteReadError, OSError):
                return
            if header.api_key == API_VERSIONS.key:
                versions = ApiVersionsResponse(api_keys=OFFERED)
                writer.write(encode_response(API_VERSIONS.key, header.version, header.correlation_id, versions))
            else:
                self.asked.append(header)
                await self.script(header, writer)


async def answer(header: RequestHeader, writer: asyncio.StreamWriter, correlation_id: int | None = None) -> None:
    response = DescribeClusterResponse(cluster_id=header.client_id or "", controller_id=header.correlation_id)
    correlation_id = header.correlation_id if correlation_id is None else correlation_id
    writer.write(encode_response(header.api_key, header.version, correlation_id, response))


async def keep_silent(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
    """Do not answer."""


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[ScriptedBroker, ConnectedPeers, list[int]]]:
    broker, lost = ScriptedBroker(), list[int]()
    await broker.start()
    peers = ConnectedPeers(
        lambda broker_id: broker.address if broker_id == BROKER else None,
        client_id="broker-1",
        request_timeout_ms=lambda: 5_000,
        lost=lost.append,
    )
    try:
        yield broker, peers, lost
    finally:
        peers.stop()
        await broker.stop()


def ask(peers: ConnectedPeers, **options: Any) -> Coroutine[Any, Any, DescribeClusterResponse]:
    return peers.ask(BROKER, DESCRIBE_CLUSTER, DescribeClusterRequest(), **options)


async def asked(broker: ScriptedBroker, count: int) -> None:
    while len(broker.asked) < count:
        await asyncio.sleep(0.001)


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    return lambda scenario: request.param(asyncio.wait_for(scenario(), 10))


def test_requests_are_pipelined_on_one_connection(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with scripted() as (broker, peers, lost):
            answers = await asyncio.gather(*(ask(peers) for _ in range(50)))
            assert [each.cluster_id for each in answers] == ["broker-1"] * 50
            assert [each.controller_id for each in answers] == [each.correlation_id for each in broker.asked]
            assert broker.accepted == 1
            await ask(peers, channel=Channel.CONTROL)
            assert broker.accepted == 2
            peers.stop()
            with pytest.raises(BrokerUnavailableError, match="stopping"):
                await ask(peers)
            assert lost == []

    run(scenario)


def test_a_broker_without_address_and_an_api_that_is_not_offered(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with scripted() as (_, peers, _lost):
            with pytest.raises(BrokerUnavailableError, match="broker 3 has no address"):
                await peers.ask(3, DESCRIBE_CLUSTER, DescribeClusterRequest())
            with pytest.raises(UnsupportedVersionError, match="does not offer it"):
                await peers.ask(BROKER, OFFSET_DELETE, OffsetDeleteRequest())
            await ask(peers)

    run(scenario)


def test_a_lost_connection_fails_what_waits_and_is_opened_again_each_time(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with scripted() as (broker, peers, lost):
            for times in (1, 2):
                broker.script = keep_silent
                waiting = [asyncio.ensure_future(ask(peers)) for _ in range(3)]
                await asked(broker, 3 + 4 * (times - 1))
                broker.writers[-1].transport.abort()
                for each in waiting:
                    with pytest.raises(ConnectionLostError, match="broke before its answer to DescribeCluster"):
                        await each
                assert lost == [BROKER] * times
                broker.script = answer
                await ask(peers)
                assert broker.accepted == 1 + times

    run(scenario)


def test_refused_is_told_apart_until_the_broker_is_there_again(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with scripted() as (broker, peers, lost):
            await ask(peers)
            assert broker.address is not None
            await broker.stop()
            while not lost:
                await asyncio.sleep(0.001)
            for _ in range(2):
                waiting = [ask(peers) for _ in range(2)]
                failures = await asyncio.gather(*waiting, return_exceptions=True)
                assert [type(each) for each in failures] == [BrokerRefusedError] * 2
                assert failures[0] is not failures[1]
            await broker.start(broker.address.port)
            await ask(peers)

    run(scenario)


def test_a_late_answer_is_dropped_and_the_next_one_is_taken(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with scripted() as (broker, peers, lost):
            broker.script = keep_silent
            patient = asyncio.ensure_future(ask(peers))
            await asked(broker, 1)
            with pytest.raises(ResponseTimedOutError, match="did not answer a DescribeCluster request in 20 ms"):
                await ask(peers, timeout_ms=20)
            given_up = asyncio.ensure_future(ask(peers))
            await asked(broker, 3)
            given_up.cancel()
            broker.script = answer
            for header in list(broker.asked):
                await answer(header, broker.writers[0])
            assert (await patient).controller_id == broker.asked[0].correlation_id
            assert (await ask(peers)).controller_id == broker.asked[3].correlation_id
            assert (broker.accepted, lost) == (1, [])

    run(scenario)


@pytest.mark.exhaustive
def test_a_broker_that_says_nothing_is_connected_to_anew(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with scripted() as (broker, peers, lost):
            broker.script = keep_silent
            for times in (1, 2):
                behind = asyncio.ensure_future(ask(peers, timeout_ms=250))
                waiting = asyncio.ensure_future(ask(peers))
                with pytest.raises(ResponseTimedOutError):
                    await behind
                with pytest.raises(ConnectionLostError, match="its connection was closed"):
                    await waiting
                assert broker.accepted == times
            broker.script = answer
            await ask(peers)
            assert lost == []

    run(scenario)


def test_the_oldest_request_that_timed_out_before_closes_at_the_next(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with scripted() as (broker, peers, _lost):
            broker.script = keep_silent
            first = asyncio.ensure_future(ask(peers))
            await asked(broker, 1)
            with pytest.raises(ResponseTimedOutError):
                await ask(peers, timeout_ms=5)
            await answer(broker.asked[0], broker.writers[0])
            await first
            with pytest.raises(ResponseTimedOutError):
                await ask(peers, timeout_ms=5)
            broker.script = answer
            await ask(peers)
            assert broker.accepted == 2

    run(scenario)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (None, "response 77 instead of"),
        ((exchange.LARGEST_RESPONSE_BYTES + 1).to_bytes(4, "big"), "a response of 268435457 bytes"),
        (b"HTTP", "a response of 1213486160 bytes"),
        (b"\xff\xff\xff\xff", "a response of -1 bytes"),
    ],
    ids=["wrong correlation id", "too large", "another protocol", "negative"],
)
def test_a_response_that_is_none_fails_what_waits(frame: bytes | None, message: str) -> None:
    async def scenario() -> None:
        async with scripted() as (broker, peers, _lost):

            async def spoil(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
                if frame is None:
                    await answer(header, writer, correlation_id=77)
                else:
                    writer.write(frame)

            for _ in range(2):
                broker.script = spoil
                failures = await asyncio.gather(ask(peers), ask(peers), return_exceptions=True)
                assert [type(each) for each in failures] == [BrokerUnavailableError] * 2
                assert message in str(failures[0])
                broker.script = answer
                await ask(peers)
            assert broker.accepted == 3

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_a_malformed_body_and_a_response_that_nobody_asked_for() -> None:
    async def scenario() -> None:
        async with scripted() as (broker, peers, _lost):

            async def cut(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
                writer.write((5).to_bytes(4, "big") + header.correlation_id.to_bytes(4, "big") + b"\0")

            broker.script = cut
            with pytest.raises(BrokerUnavailableError, match="does not speak Kafka's protocol"):
                await ask(peers)
            broker.script = answer
            await ask(peers)
            await answer(broker.asked[-1], broker.writers[-1])  # once more
            await asyncio.sleep(0.01)
            await ask(peers)
            assert broker.accepted == 3

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_responses_come_in_pieces() -> None:
    async def scenario() -> None:
        async with scripted() as (broker, peers, _lost):

            async def drip(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
                response = DescribeClusterResponse(cluster_id="x" * 1_000)
                for byte in encode_response(header.api_key, header.version, header.correlation_id, response)[:100]:
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0)
                writer.write(encode_response(header.api_key, header.version, header.correlation_id, response)[100:])

            broker.script = drip
            assert [each.cluster_id for each in await asyncio.gather(ask(peers), ask(peers))] == ["x" * 1_000] * 2

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_connection, "REQUESTS_MAX", 3)
    monkeypatch.setattr(peer_connection, "REQUEST_BYTES_MAX", 500)

    async def scenario() -> None:
        async with scripted() as (broker, peers, _lost):
            broker.script = keep_silent
            waiting = [asyncio.ensure_future(ask(peers)) for _ in range(3)]
            await asked(broker, 3)
            with pytest.raises(BrokerUnavailableError, match=r"3 requests of .* bytes already wait"):
                await ask(peers)
            for header in broker.asked:
                await answer(header, broker.writers[0])
            await asyncio.gather(*waiting)
            broker.asked.clear()
            large = MetadataRequest(topics=None)
            waiting = [asyncio.ensure_future(ask(peers))]
            await asked(broker, 1)
            monkeypatch.setattr(peer_connection, "REQUEST_BYTES_MAX", 20)
            with pytest.raises(BrokerUnavailableError, match=r"1 requests of .* bytes already wait"):
                await peers.ask(BROKER, METADATA, large)
            await answer(broker.asked[0], broker.writers[0])
            await waiting[0]
            broker.script = answer
            await ask(peers)  # larger than the bound, and alone

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_the_timeout_includes_the_opening_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts, and says nothing
            address = Address(*listener.getsockname()[:2])
            peers = ConnectedPeers(lambda _: address, client_id="broker-1", request_timeout_ms=lambda: 20)
            with pytest.raises(ResponseTimedOutError, match="no connection to broker 7"):
                await ask(peers)
            monkeypatch.setattr("kafkalake.client.peers.CONNECT_TIMEOUT_MS", 20)
            peers.stop()
            peers = ConnectedPeers(lambda _: address, client_id="broker-1", request_timeout_ms=lambda: 5_000)
            for _ in range(2):
                with pytest.raises(BrokerUnavailableError, match="timed out after 20 ms"):
                    await ask(peers)

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_another_address_of_the_broker_is_taken_at_once() -> None:
    async def scenario() -> None:
        async with scripted() as (old, peers, lost), scripted() as (new, _, _lost):
            await ask(peers)
            old.script = keep_silent
            waiting = asyncio.ensure_future(ask(peers))
            await asked(old, 2)
            old.address, address = new.address, old.address
            await ask(peers)
            assert new.accepted == 1
            with pytest.raises(ConnectionLostError):
                await waiting
            old.address = None
            with pytest.raises(BrokerUnavailableError, match="has no address"):
                await ask(peers)
            old.address, old.script = address, answer
            await ask(peers)
            assert lost == []

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_stopping_fails_what_waits_and_what_is_being_opened() -> None:
    async def scenario() -> None:
        async with scripted() as (broker, peers, lost):
            await ask(peers)
            broker.script = keep_silent
            waiting = [
                asyncio.ensure_future(ask(peers)),
                asyncio.ensure_future(ask(peers, channel=Channel.CONTROL)),
            ]
            await asked(broker, 2)
            peers.stop()
            failures = await asyncio.gather(*waiting, return_exceptions=True)
            assert [isinstance(each, BrokerUnavailableError) for each in failures] == [True, True]
            assert lost == []
        async with scripted() as (broker, peers, _lost):
            opening = asyncio.ensure_future(ask(peers))
            await asyncio.sleep(0)
            peers.stop()
            with pytest.raises(BrokerUnavailableError, match="not wanted any more"):
                await opening

    asyncio.run(asyncio.wait_for(scenario(), 10))
