"""What an error means for a transaction: try again, look the coordinator up, abort, or give the producer up.

Source: `TransactionManager` of Apache Kafka 4.1, the handlers of its requests; KIP-360, KIP-890, KIP-1050.
"""

from __future__ import annotations

from enum import Enum

from kafkalake.client.errors import TransactionMustAbortError
from kafkalake.errors import (
    BrokerUnavailableError,
    ClusterAuthorizationError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    KafkaLakeError,
    NotCoordinatorError,
    ProducerFencedError,
    StaleMemberEpochError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
    UnknownMemberIdError,
    UnknownProducerIdError,
    UnsupportedVersionError,
)


class Verdict(Enum):
    """The consequence of an error."""

    RETRY = "retry"
    LOOK_UP = "look the coordinator up"
    ABORT = "abort the transaction"
    GIVE_UP = "close the producer"


_LOOK_UP = (BrokerUnavailableError, CoordinatorNotAvailableError, NotCoordinatorError)
_ABORT = (
    FencedInstanceIdError,
    GroupAuthorizationError,
    IllegalGenerationError,
    InvalidProducerIdMappingError,
    StaleMemberEpochError,
    TopicAuthorizationError,
    TransactionAbortableError,
    UnknownMemberIdError,
    UnknownProducerIdError,
)
_GIVE_UP_AFTER_PRODUCE = (
    ClusterAuthorizationError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionalIdAuthorizationError,
    UnsupportedVersionError,
)


def verdict_on(error: KafkaLakeError) -> Verdict:
    """Return what the error of a coordinator's response, or of the request, means."""
    if isinstance(error, _LOOK_UP):
        return Verdict.LOOK_UP
    if isinstance(error, _ABORT):
        return Verdict.ABORT
    if isinstance(error, KafkaError) and error.retriable:
        return Verdict.RETRY
    return Verdict.GIVE_UP


def verdict_on_batch(error: KafkaLakeError) -> Verdict:
    """Return what the final error of a batch means. A stale epoch is the coordinator's to judge, at the abort."""
    return Verdict.GIVE_UP if isinstance(error, _GIVE_UP_AFTER_PRODUCE) else Verdict.ABORT


def as_fenced(error: KafkaLakeError) -> KafkaLakeError:
    """Return `ProducerFencedError` for a coordinator's INVALID_PRODUCER_EPOCH, which means the same; other errors as they are."""
    if isinstance(error, InvalidProducerEpochError):
        return ProducerFencedError("a newer producer with the same transactional id has begun")
    return error


def must_abort(error: KafkaLakeError) -> TransactionMustAbortError:
    """Return the error of a transaction that failed for `error`."""
    made = TransactionMustAbortError(f"the transaction must be aborted: {error}")
    made.__cause__ = error
    return made
