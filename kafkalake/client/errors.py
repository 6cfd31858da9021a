"""Errors of the client itself, which no broker answers with.

KafkaLakeError
├── ClientTimeoutError            something did not happen within its time: metadata, a delivery, a close
│   └── BufferExhaustedError      no room for a record within `max.block.ms`
├── ClientClosedError             the client was closed
├── IllegalStateError             a call that is not allowed now, as a commit outside of a transaction
├── TransactionAbortedError       the record's transaction was aborted before the record was sent
├── AssignorError                 an assignor of a consumer's group has raised
└── SerializationError            a key or a value cannot be made bytes, or bytes a value
"""

from __future__ import annotations

from kafkalake.errors import KafkaLakeError


class ClientTimeoutError(KafkaLakeError):
    """Something did not happen in its time. It may still happen."""

    code = 7
    retriable = True


class BufferExhaustedError(ClientTimeoutError):
    """The records that wait fill `buffer.memory`, and none was delivered within `max.block.ms`."""


class ClientClosedError(KafkaLakeError):
    """The client is closed, or was closed while a call waited or a record was not delivered."""


class IllegalStateError(KafkaLakeError):
    """A call that the client's state does not allow. Nothing was changed."""


class TransactionAbortedError(KafkaLakeError):
    """The record's transaction was aborted before the record was sent."""


class TransactionMustAbortError(KafkaLakeError):
    """The transaction has failed, for the reason in `__cause__` and in the text. Abort it; the producer stays usable."""


class AssignorError(KafkaLakeError):
    """An assignor has raised, for the reason in `__cause__` and in the text. The poll after joins again, and asks it again."""


class SerializationError(KafkaLakeError):
    """A key or a value cannot be made bytes, or bytes cannot be made one."""


class WakeupError(KafkaLakeError):
    """`wakeup` was called while a consumer waited, or before it did."""
