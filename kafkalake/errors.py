"""The one error tree of kafkalake.

    KafkaLakeError
    ├── ConfigurationError            a setting that cannot be used (in the Kafka protocol also InvalidConfigError)
    ├── LakeError                     the lake on disk is missing or invalid
    │   ├── CorruptSegmentError       bytes on disk that fail their checksum or their format: file and position
    │   ├── RecordsLostError          requested records were acknowledged, but lost when the machine stopped
    │   ├── LeaseHeldError            another broker holds this lake and broker id
    │   └── SegmentsChangedError      the segments that a job wanted to replace have changed
    ├── BrokerUnavailableError        no broker answers at the address (client side)
    └── KafkaError                    errors with a Kafka error code; one class per code in use

Each `KafkaError` class carries Kafka's numeric `code`, Kafka's `label` and whether a client may simply retry.
An error that is caught and kept, as the result of a batch or the answer for a partition, goes through `as_value` first: its
traceback holds the frames that it passed through, and they hold a request's buffers.

An error without a text of its own has Kafka's message for its code (`error_sentences.py`). No type of a transport or a library
appears here. Source of codes: Kafka protocol guide, "Error Codes".
"""

from __future__ import annotations

from typing import TypeVar

from kafkalake.error_sentences import SENTENCES


class KafkaLakeError(Exception):
    """Base of all errors that kafkalake raises deliberately."""


class ConfigurationError(KafkaLakeError):
    """A setting is unknown, malformed or out of its range."""


class LakeError(KafkaLakeError):
    """The lake on disk is missing or invalid."""


class CorruptSegmentError(LakeError):
    """Bytes of a segment that fail their checksum or their format."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path}: at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class RecordsLostError(LakeError):
    """Requested records were acknowledged, but lost when the machine stopped before they were on disk."""


class LeaseHeldError(LakeError):
    """Another broker holds this lake and broker id."""


class SegmentsChangedError(LakeError):
    """Segments that a job wanted to replace were removed or replaced meanwhile. Nothing was changed, and the job can retry."""


class BrokerUnavailableError(KafkaLakeError):
    """No broker answers at the given address."""


MESSAGE_CHARACTERS_MAX = 1_000
"""Limit of a message: it may quote client input as long as a request, but goes into response fields and log lines."""


class KafkaError(KafkaLakeError):
    """An error that Kafka's protocol has a code for.

    Attributes: `code` int16 as sent on the wire, `label` Kafka's name, `retriable` whether the same request may
    succeed later without change. `record_errors`, for a refused batch, lists the invalid records: index in the
    batch, and a message if there is one.
    """

    code: int = -1
    label: str = "UNKNOWN_SERVER_ERROR"
    retriable: bool = False
    record_errors: tuple[tuple[int, str | None], ...] = ()

    def __init__(self, message: str = "", record_errors: tuple[tuple[int, str | None], ...] = ()) -> None:
        if record_errors:
            self.record_errors = record_errors
        if len(message) > MESSAGE_CHARACTERS_MAX:
            message = f"{message[:MESSAGE_CHARACTERS_MAX]}..."
        super().__init__(message or SENTENCES.get(self.code, self.label))


class OffsetOutOfRangeError(KafkaError):
    code, label, retriable = 1, "OFFSET_OUT_OF_RANGE", False


class CorruptMessageError(KafkaError):
    code, label, retriable = 2, "CORRUPT_MESSAGE", True


class UnknownTopicOrPartitionError(KafkaError):
    code, label, retriable = 3, "UNKNOWN_TOPIC_OR_PARTITION", True


class InvalidFetchSizeError(KafkaError):
    code, label, retriable = 4, "INVALID_FETCH_SIZE", False


class LeaderNotAvailableError(KafkaError):
    code, label, retriable = 5, "LEADER_NOT_AVAILABLE", True


class NotLeaderOrFollowerError(KafkaError):
    code, label, retriable = 6, "NOT_LEADER_OR_FOLLOWER", True


class RequestTimedOutError(KafkaError):
    code, label, retriable = 7, "REQUEST_TIMED_OUT", True


class MessageTooLargeError(KafkaError):
    code, label, retriable = 10, "MESSAGE_TOO_LARGE", False


class DecompressedTooLargeError(MessageTooLargeError):
    """Decompressed records exceed the limit. Kafka's clients split a batch that is too large and send it again."""


class OffsetMetadataTooLargeError(KafkaError):
    code, label, retriable = 12, "OFFSET_METADATA_TOO_LARGE", False


class NetworkExceptionError(KafkaError):
    code, label, retriable = 13, "NETWORK_EXCEPTION", True


class CoordinatorLoadInProgressError(KafkaError):
    code, label, retriable = 14, "COORDINATOR_LOAD_IN_PROGRESS", True


class CoordinatorNotAvailableError(KafkaError):
    code, label, retriable = 15, "COORDINATOR_NOT_AVAILABLE", True


class NotCoordinatorError(KafkaError):
    code, label, retriable = 16, "NOT_COORDINATOR", True


class InvalidTopicError(KafkaError):
    code, label, retriable = 17, "INVALID_TOPIC_EXCEPTION", False


class RecordListTooLargeError(KafkaError):
    code, label, retriable = 18, "RECORD_LIST_TOO_LARGE", False


class NotEnoughReplicasError(KafkaError):
    code, label, retriable = 19, "NOT_ENOUGH_REPLICAS", True


class InvalidRequiredAcksError(KafkaError):
    code, label, retriable = 21, "INVALID_REQUIRED_ACKS", False


class IllegalGenerationError(KafkaError):
    code, label, retriable = 22, "ILLEGAL_GENERATION", False


class InconsistentGroupProtocolError(KafkaError):
    code, label, retriable = 23, "INCONSISTENT_GROUP_PROTOCOL", False


class InvalidGroupIdError(KafkaError):
    code, label, retriable = 24, "INVALID_GROUP_ID", False


class UnknownMemberIdError(KafkaError):
    code, label, retriable = 25, "UNKNOWN_MEMBER_ID", False


class InvalidSessionTimeoutError(KafkaError):
    code, label, retriable = 26, "INVALID_SESSION_TIMEOUT", False


class RebalanceInProgressError(KafkaError):
    code, label, retriable = 27, "REBALANCE_IN_PROGRESS", False


class InvalidCommitOffsetSizeError(KafkaError):
    code, label, retriable = 28, "INVALID_COMMIT_OFFSET_SIZE", False


class TopicAuthorizationError(KafkaError):
    code, label, retriable = 29, "TOPIC_AUTHORIZATION_FAILED", False


class GroupAuthorizationError(KafkaError):
    code, label, retriable = 30, "GROUP_AUTHORIZATION_FAILED", False


class ClusterAuthorizationError(KafkaError):
    code, label, retriable = 31, "CLUSTER_AUTHORIZATION_FAILED", False


class InvalidTimestampError(KafkaError):
    code, label, retriable = 32, "INVALID_TIMESTAMP", False


class UnsupportedVersionError(KafkaError):
    code, label, retriable = 35, "UNSUPPORTED_VERSION", False


class TopicAlreadyExistsError(KafkaError):
    code, label, retriable = 36, "TOPIC_ALREADY_EXISTS", False


class InvalidPartitionsError(KafkaError):
    code, label, retriable = 37, "INVALID_PARTITIONS", False


class InvalidReplicationFactorError(KafkaError):
    code, label, retriable = 38, "INVALID_REPLICATION_FACTOR", False


class InvalidReplicaAssignmentError(KafkaError):
    code, label, retriable = 39, "INVALID_REPLICA_ASSIGNMENT", False


class InvalidConfigError(KafkaError):
    code, label, retriable = 40, "INVALID_CONFIG", False


class NotControllerError(KafkaError):
    code, label, retriable = 41, "NOT_CONTROLLER", True


class InvalidRequestError(KafkaError):
    code, label, retriable = 42, "INVALID_REQUEST", False


class UnsupportedForMessageFormatError(KafkaError):
    code, label, retriable = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", False


class PolicyViolationError(KafkaError):
    code, label, retriable = 44, "POLICY_VIOLATION", False


class OutOfOrderSequenceError(KafkaError):
    code, label, retriable = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER", False


class DuplicateSequenceError(KafkaError):
    code, label, retriable = 46, "DUPLICATE_SEQUENCE_NUMBER", False


class InvalidProducerEpochError(KafkaError):
    code, label, retriable = 47, "INVALID_PRODUCER_EPOCH", False


class InvalidTxnStateError(KafkaError):
    code, label, retriable = 48, "INVALID_TXN_STATE", False


class InvalidProducerIdMappingError(KafkaError):
    code, label, retriable = 49, "INVALID_PRODUCER_ID_MAPPING", False


class InvalidTransactionTimeoutError(KafkaError):
    code, label, retriable = 50, "INVALID_TRANSACTION_TIMEOUT", False


class ConcurrentTransactionsError(KafkaError):
    code, label, retriable = 51, "CONCURRENT_TRANSACTIONS", True


class TransactionCoordinatorFencedError(KafkaError):
    code, label, retriable = 52, "TRANSACTION_COORDINATOR_FENCED", False


class TransactionalIdAuthorizationError(KafkaError):
    code, label, retriable = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", False


class OperationNotAttemptedError(KafkaError):
    code, label, retriable = 55, "OPERATION_NOT_ATTEMPTED", False


class KafkaStorageError(KafkaError):
    code, label, retriable = 56, "KAFKA_STORAGE_ERROR", True


class LogDirNotFoundError(KafkaError):
    code, label, retriable = 57, "LOG_DIR_NOT_FOUND", False


class UnknownProducerIdError(KafkaError):
    code, label, retriable = 59, "UNKNOWN_PRODUCER_ID", False


class NonEmptyGroupError(KafkaError):
    code, label, retriable = 68, "NON_EMPTY_GROUP", False


class GroupIdNotFoundError(KafkaError):
    code, label, retriable = 69, "GROUP_ID_NOT_FOUND", False


class FetchSessionIdNotFoundError(KafkaError):
    code, label, retriable = 70, "FETCH_SESSION_ID_NOT_FOUND", True


class InvalidFetchSessionEpochError(KafkaError):
    code, label, retriable = 71, "INVALID_FETCH_SESSION_EPOCH", True


class TopicDeletionDisabledError(KafkaError):
    code, label, retriable = 73, "TOPIC_DELETION_DISABLED", False


class FencedLeaderEpochError(KafkaError):
    code, label, retriable = 74, "FENCED_LEADER_EPOCH", True


class UnknownLeaderEpochError(KafkaError):
    code, label, retriable = 75, "UNKNOWN_LEADER_EPOCH", True


class UnsupportedCompressionTypeError(KafkaError):
    code, label, retriable = 76, "UNSUPPORTED_COMPRESSION_TYPE", False


class OffsetNotAvailableError(KafkaError):
    code, label, retriable = 78, "OFFSET_NOT_AVAILABLE", True


class MemberIdRequiredError(KafkaError):
    code, label, retriable = 79, "MEMBER_ID_REQUIRED", False


class GroupMaxSizeReachedError(KafkaError):
    code, label, retriable = 81, "GROUP_MAX_SIZE_REACHED", False


class FencedInstanceIdError(KafkaError):
    code, label, retriable = 82, "FENCED_INSTANCE_ID", False


class GroupSubscribedToTopicError(KafkaError):
    code, label, retriable = 86, "GROUP_SUBSCRIBED_TO_TOPIC", False


class InvalidRecordError(KafkaError):
    code, label, retriable = 87, "INVALID_RECORD", False


class UnstableOffsetCommitError(KafkaError):
    code, label, retriable = 88, "UNSTABLE_OFFSET_COMMIT", True


class ProducerFencedError(KafkaError):
    code, label, retriable = 90, "PRODUCER_FENCED", False


class UnknownTopicIdError(KafkaError):
    code, label, retriable = 100, "UNKNOWN_TOPIC_ID", True


class InconsistentTopicIdError(KafkaError):
    code, label, retriable = 103, "INCONSISTENT_TOPIC_ID", True


class TransactionalIdNotFoundError(KafkaError):
    code, label, retriable = 105, "TRANSACTIONAL_ID_NOT_FOUND", False


class FetchSessionTopicIdError(KafkaError):
    code, label, retriable = 106, "FETCH_SESSION_TOPIC_ID_ERROR", True


class FencedMemberEpochError(KafkaError):
    code, label, retriable = 110, "FENCED_MEMBER_EPOCH", False


class UnreleasedInstanceIdError(KafkaError):
    code, label, retriable = 111, "UNRELEASED_INSTANCE_ID", False


class UnsupportedAssignorError(KafkaError):
    code, label, retriable = 112, "UNSUPPORTED_ASSIGNOR", False


class StaleMemberEpochError(KafkaError):
    code, label, retriable = 113, "STALE_MEMBER_EPOCH", False


class TransactionAbortableError(KafkaError):
    code, label, retriable = 120, "TRANSACTION_ABORTABLE", False


class InvalidRegularExpressionError(KafkaError):
    code, label, retriable = 128, "INVALID_REGULAR_EXPRESSION", False


_BY_CODE: dict[int, type[KafkaError]] = {error.code: error for error in KafkaError.__subclasses__()}


def error_for_code(code: int, message: str = "") -> KafkaError:
    """Return the error for Kafka's `code` (int16, not 0). A code without a class keeps its number."""
    error = _BY_CODE.get(code, KafkaError)(message or SENTENCES.get(code, ""))
    error.code = code
    return error


E = TypeVar("E", bound=BaseException)
K = TypeVar("K", bound=KafkaError)


def with_retriable(error: K, retriable: bool) -> K:
    """Return the same error, so that it can be raised directly: a variable for it would be in a frame of its own traceback."""
    error.retriable = retriable
    return error


def as_value(error: E) -> E:
    """Return the same error without its traceback, cause and context, which would keep whole frames alive."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error
