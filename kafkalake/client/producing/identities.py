"""Where a producer's batches get their identity from: nowhere, or from any broker for an idempotent producer (KIP-98).

A transactional producer has it from its coordinator: see `transactions`.
"""

from __future__ import annotations

from typing import Protocol

from kafkalake.client.network.backoff import ExponentialBackoff
from kafkalake.client.network.client import NetworkClient
from kafkalake.client.network.pending_request import PendingRequest
from kafkalake.client.producing.batch import Batch
from kafkalake.client.producing.idempotence import Identity, Sequences
from kafkalake.client.requests import INIT_PRODUCER_ID, PRODUCE, ClientApi, error_name
from kafkalake.errors import (
    BrokerUnavailableError,
    KafkaError,
    KafkaLakeError,
    NetworkExceptionError,
    error_for_code,
)
from kafkalake.wire.messages.records import ProduceRequest, ProduceResponse
from kafkalake.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse


class Identities(Protocol):
    """A source of identities, as a sender asks it. `error`: for which nothing is sent any more."""

    @property
    def error(self) -> KafkaLakeError | None: ...
    @property
    def transactional_id(self) -> str | None: ...
    @property
    def produce_api(self) -> ClientApi[ProduceRequest, ProduceResponse]:
        """The versions of Produce that may be used."""
        ...

    def poll(self, now_ms: int) -> None:
        """Send the requests that are due."""
        ...

    def next_deadline_ms(self) -> int | None:
        """Return when `poll` is due although nothing happened."""
        ...

    def may_send(self, batch: Batch) -> bool:
        """Return whether a batch may be sent now."""
        ...

    def sent(self, batch: Batch) -> None:
        """Take the news that a batch is about to be sent for the first time."""
        ...

    def failed(self, batch: Batch, error: KafkaLakeError) -> None:
        """Take the news that a batch is lost for good."""
        ...


class NoIdentity:
    """Of a producer that is not idempotent."""

    error: KafkaLakeError | None = None
    transactional_id: str | None = None
    produce_api = PRODUCE

    def poll(self, now_ms: int) -> None:
        """Do nothing."""

    def next_deadline_ms(self) -> int | None:
        """Return None."""
        return None

    def may_send(self, batch: Batch) -> bool:
        """Return True."""
        return True

    def sent(self, batch: Batch) -> None:
        """Do nothing."""

    def failed(self, batch: Batch, error: KafkaLakeError) -> None:
        """Do nothing."""


class IdempotentIdentity:
    """Of an idempotent producer without transactions: asked for when there is something to send, and when epochs are used up."""

    transactional_id: str | None = None
    produce_api = PRODUCE

    def __init__(self, client: NetworkClient, sequences: Sequences, backoff: ExponentialBackoff) -> None:
        self._client = client
        self._sequences = sequences
        self._backoff = backoff
        self._is_asked = False
        self._attempts = 0
        self._retry_at_ms = 0
        self._is_needed = False
        self.error: KafkaLakeError | None = None

    def poll(self, now_ms: int) -> None:
        """Ask for a producer id, or raise the epoch, if that is due."""
        self._sequences.resolve()
        self._sequences.raise_epoch()
        if not self._waits or self._retry_at_ms > now_ms:
            return
        node_id = self._client.any_node(now_ms)
        if node_id is None:
            self._retry_at_ms = self._client.chance_ms(now_ms)
            return
        self._is_asked = True
        request = InitProducerIdRequest(transaction_timeout=2**31 - 1)

        def done(pending: PendingRequest[InitProducerIdResponse]) -> None:
            self._answered(pending, now_ms)

        self._client.send(node_id, INIT_PRODUCER_ID, request, now_ms, done=done)

    def next_deadline_ms(self) -> int | None:
        """Return when a producer id is asked for again."""
        return self._retry_at_ms if self._waits else None

    @property
    def _waits(self) -> bool:
        """Return whether an id is to be asked for: not after an error that stays."""
        return self._is_needed and not self._is_asked and self.error is None and not self._sequences.identity.is_valid

    def may_send(self, batch: Batch) -> bool:
        """Return whether a batch may be sent now."""
        self._is_needed = True
        return self._sequences.may_send(batch)

    def sent(self, batch: Batch) -> None:
        """Number the batch."""
        self._sequences.number(batch)

    def failed(self, batch: Batch, error: KafkaLakeError) -> None:
        """Do nothing: the batch's numbers are replaced."""

    def _answered(self, pending: PendingRequest[InitProducerIdResponse], now_ms: int) -> None:
        self._is_asked = False
        error = error_of(pending, "a producer id")
        if error is None:
            response = pending.result()
            self._attempts = 0
            self._sequences.renew(Identity(response.producer_id, response.producer_epoch))
        elif may_pass(error):
            self._retry_at_ms = now_ms + self._backoff.delay_ms(self._attempts)
            self._attempts += 1
        else:
            self.error = error


def error_of(pending: PendingRequest[InitProducerIdResponse], subject: str) -> KafkaLakeError | None:
    """Return the error of a request or in its response, None for none."""
    if pending.error is not None:
        return pending.error
    return error_in(pending.result(), subject)


def error_in(response: InitProducerIdResponse, subject: str) -> KafkaError | None:
    """Return the error of a response, None if it has an id and an epoch."""
    code = response.error_code
    if code:
        return error_for_code(code, f"{subject}: {error_name(code).lower()}")
    has_identity = response.producer_id >= 0 and response.producer_epoch >= 0
    return None if has_identity else NetworkExceptionError(f"{subject}: the response has no producer id")


def may_pass(error: KafkaLakeError) -> bool:
    """Return whether the same request may succeed later."""
    return isinstance(error, BrokerUnavailableError) or (isinstance(error, KafkaError) and error.retriable)
