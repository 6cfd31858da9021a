"""The one error tree of kafkalake.

    KafkaLakeError
    ├── ConfigurationError            a setting that cannot be used (in the Kafka protocol also InvalidConfigError)
    ├── LakeError                     the lake on disk is missing or invalid
    │   ├── CorruptSegmentError       bytes on disk that fail their checksum or their format: file and position
    │   ├── RecordsLostError          requested records were acknowledged, but lost when the machine stopped
    │   ├── LeaseHeldError            another broker holds this lake and broker id
    │   └── SegmentsChangedError      the segments that a job wanted to replace have changed
    ├── BrokerUnavailableError        no broker answers at the address
    │   ├── BrokerRefusedError        nothing listens there: the connection was refused
    │   └── ConnectionLostError       the connection broke; the broker may or may not have processed the request
    │       └── ResponseTimedOutError the same, because no response came in time
    ├── DivergedLogError              a replica's log is no prefix of its leader's
    ├── StaleImageError               the cluster has changed since the image that a decision was made on
    └── KafkaError                    errors with a Kafka error code; one class per code in use

Each `KafkaError` class carries Kafka's numeric `code`, Kafka's `label` and whether a client may simply retry.
An error that is caught and kept, as the result of a batch or the answer for a partition, goes through `as_value` first: its
traceback holds the frames that it passed through, and they hold a request's buffers.

An error without a text of its own has Kafka's message for its code (`error_sentences.py`). No type of a transport or a library
appears here. Source of codes: Kafka protocol guide, "Error Codes".

More than 400 lines: one class for each code, and nothing else.
"""

from __future__ import annotations

from typing import TypeVar

from kafkalake.error_sentences import SENTENCES


class KafkaLakeError(Exception):
    """Base of all errors that kafkalake raises deliberately.

    Attributes: `code` of the error in Kafka's protocol that it is nearest to, -1 for none; `retriable` whether the same call may
    succeed later without change.
    """

    code: int = -1
    retriable: bool = False


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

    code = 13
    retriable = True


class BrokerRefusedError(BrokerUnavailableError):
    """Nothing listens at the broker's address: the connection was refused, so no process of the broker takes requests there."""


class ConnectionLostError(BrokerUnavailableError):
    """The connection broke, or the response timed out. The broker may or may not have processed the request."""


class ResponseTimedOutError(ConnectionLostError):
    """The response did not come in time."""

    code = 7


class DivergedLogError(KafkaLakeError):
    """A replica's log is no prefix of its leader's: segments begin elsewhere, or epochs decrease. Nothing was changed."""


class StaleImageError(KafkaLakeError):
    """The cluster has changed since the image that a decision was made on. Nothing was changed."""


MESSAGE_CHARACTERS_MAX = 1_000
"""Limit of a message: it may quote client input as long as a request, but goes into response fields and log lines."""


class KafkaError(KafkaLakeError):
    """An error that Kafka's protocol has a code for.

    Attributes: `code` int16 as sent on the wire, `label` Kafka's name, `retriable` whether the same request may
    succeed later without change. `record_errors`, for a refused batch, lists the invalid records: index in the
    batch, and a message if there is one.
    """

    label: str = "UNKNOWN_SERVER_ERROR"
    record_errors: tuple[tuple[int, str | None], ...] = ()

    def __init_subclass__(cls, code: int | None = None, label: str = "", retriable: bool = False) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code, cls.label, cls.retriable = code, label, retriable

    def __init__(self, message: str = "", record_errors: tuple[tuple[int, str | None], ...] = ()) -> None:
        if record_errors:
            self.record_errors = record_errors
        if len(message) > MESSAGE_CHARACTERS_MAX:
            message = f"{message[:MESSAGE_CHARACTERS_MAX]}..."
        super().__init__(message or SENTENCES.get(self.code, self.label))


class OffsetOutOfRangeError(KafkaError, code=1, label="OFFSET_OUT_OF_RANGE"): ...


class CorruptMessageError(KafkaError, code=2, label="CORRUPT_MESSAGE", retriable=True): ...


class UnknownTopicOrPartitionError(KafkaError, code=3, label="UNKNOWN_TOPIC_OR_PARTITION", retriable=True): ...


class InvalidFetchSizeError(KafkaError, code=4, label="INVALID_FETCH_SIZE"): ...


class LeaderNotAvailableError(KafkaError, code=5, label="LEADER_NOT_AVAILABLE", retriable=True): ...


class NotLeaderOrFollowerError(KafkaError, code=6, label="NOT_LEADER_OR_FOLLOWER", retriable=True): ...


class RequestTimedOutError(KafkaError, code=7, label="REQUEST_TIMED_OUT", retriable=True): ...


class ReplicaNotAvailableError(KafkaError, code=9, label="REPLICA_NOT_AVAILABLE", retriable=True): ...


class MessageTooLargeError(KafkaError, code=10, label="MESSAGE_TOO_LARGE"): ...


class DecompressedTooLargeError(MessageTooLargeError):
    """Decompressed records exceed the limit. Kafka's clients split a batch that is too large and send it again."""


class OffsetMetadataTooLargeError(KafkaError, code=12, label="OFFSET_METADATA_TOO_LARGE"): ...


class NetworkExceptionError(KafkaError, code=13, label="NETWORK_EXCEPTION", retriable=True): ...


class CoordinatorLoadInProgressError(KafkaError, code=14, label="COORDINATOR_LOAD_IN_PROGRESS", retriable=True): ...


class CoordinatorNotAvailableError(KafkaError, code=15, label="COORDINATOR_NOT_AVAILABLE", retriable=True): ...


class NotCoordinatorError(KafkaError, code=16, label="NOT_COORDINATOR", retriable=True): ...


class InvalidTopicError(KafkaError, code=17, label="INVALID_TOPIC_EXCEPTION"): ...


class RecordListTooLargeError(KafkaError, code=18, label="RECORD_LIST_TOO_LARGE"): ...


class NotEnoughReplicasError(KafkaError, code=19, label="NOT_ENOUGH_REPLICAS", retriable=True): ...


class NotEnoughReplicasAfterAppendError(
    KafkaError, code=20, label="NOT_ENOUGH_REPLICAS_AFTER_APPEND", retriable=True
): ...


class InvalidRequiredAcksError(KafkaError, code=21, label="INVALID_REQUIRED_ACKS"): ...


class IllegalGenerationError(KafkaError, code=22, label="ILLEGAL_GENERATION"): ...


class InconsistentGroupProtocolError(KafkaError, code=23, label="INCONSISTENT_GROUP_PROTOCOL"): ...


class InvalidGroupIdError(KafkaError, code=24, label="INVALID_GROUP_ID"): ...


class UnknownMemberIdError(KafkaError, code=25, label="UNKNOWN_MEMBER_ID"): ...


class InvalidSessionTimeoutError(KafkaError, code=26, label="INVALID_SESSION_TIMEOUT"): ...


class RebalanceInProgressError(KafkaError, code=27, label="REBALANCE_IN_PROGRESS"): ...


class InvalidCommitOffsetSizeError(KafkaError, code=28, label="INVALID_COMMIT_OFFSET_SIZE"): ...


class TopicAuthorizationError(KafkaError, code=29, label="TOPIC_AUTHORIZATION_FAILED"): ...


class GroupAuthorizationError(KafkaError, code=30, label="GROUP_AUTHORIZATION_FAILED"): ...


class ClusterAuthorizationError(KafkaError, code=31, label="CLUSTER_AUTHORIZATION_FAILED"): ...


class InvalidTimestampError(KafkaError, code=32, label="INVALID_TIMESTAMP"): ...


class UnsupportedVersionError(KafkaError, code=35, label="UNSUPPORTED_VERSION"): ...


class TopicAlreadyExistsError(KafkaError, code=36, label="TOPIC_ALREADY_EXISTS"): ...


class InvalidPartitionsError(KafkaError, code=37, label="INVALID_PARTITIONS"): ...


class InvalidReplicationFactorError(KafkaError, code=38, label="INVALID_REPLICATION_FACTOR"): ...


class InvalidReplicaAssignmentError(KafkaError, code=39, label="INVALID_REPLICA_ASSIGNMENT"): ...


class InvalidConfigError(KafkaError, code=40, label="INVALID_CONFIG"): ...


class NotControllerError(KafkaError, code=41, label="NOT_CONTROLLER", retriable=True): ...


class InvalidRequestError(KafkaError, code=42, label="INVALID_REQUEST"): ...


class UnsupportedForMessageFormatError(KafkaError, code=43, label="UNSUPPORTED_FOR_MESSAGE_FORMAT"): ...


class PolicyViolationError(KafkaError, code=44, label="POLICY_VIOLATION"): ...


class OutOfOrderSequenceError(KafkaError, code=45, label="OUT_OF_ORDER_SEQUENCE_NUMBER"): ...


class DuplicateSequenceError(KafkaError, code=46, label="DUPLICATE_SEQUENCE_NUMBER"): ...


class InvalidProducerEpochError(KafkaError, code=47, label="INVALID_PRODUCER_EPOCH"): ...


class InvalidTxnStateError(KafkaError, code=48, label="INVALID_TXN_STATE"): ...


class InvalidProducerIdMappingError(KafkaError, code=49, label="INVALID_PRODUCER_ID_MAPPING"): ...


class InvalidTransactionTimeoutError(KafkaError, code=50, label="INVALID_TRANSACTION_TIMEOUT"): ...


class ConcurrentTransactionsError(KafkaError, code=51, label="CONCURRENT_TRANSACTIONS", retriable=True): ...


class TransactionCoordinatorFencedError(KafkaError, code=52, label="TRANSACTION_COORDINATOR_FENCED"): ...


class TransactionalIdAuthorizationError(KafkaError, code=53, label="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"): ...


class SecurityDisabledError(KafkaError, code=54, label="SECURITY_DISABLED"): ...


class OperationNotAttemptedError(KafkaError, code=55, label="OPERATION_NOT_ATTEMPTED"): ...


class KafkaStorageError(KafkaError, code=56, label="KAFKA_STORAGE_ERROR", retriable=True): ...


class LogDirNotFoundError(KafkaError, code=57, label="LOG_DIR_NOT_FOUND"): ...


class UnknownProducerIdError(KafkaError, code=59, label="UNKNOWN_PRODUCER_ID"): ...


class DelegationTokenRequestNotAllowedError(KafkaError, code=64, label="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"): ...


class UnsupportedSaslMechanismError(KafkaError, code=33, label="UNSUPPORTED_SASL_MECHANISM"): ...


class IllegalSaslStateError(KafkaError, code=34, label="ILLEGAL_SASL_STATE"): ...


class NonEmptyGroupError(KafkaError, code=68, label="NON_EMPTY_GROUP"): ...


class GroupIdNotFoundError(KafkaError, code=69, label="GROUP_ID_NOT_FOUND"): ...


class FetchSessionIdNotFoundError(KafkaError, code=70, label="FETCH_SESSION_ID_NOT_FOUND", retriable=True): ...


class InvalidFetchSessionEpochError(KafkaError, code=71, label="INVALID_FETCH_SESSION_EPOCH", retriable=True): ...


class ListenerNotFoundError(KafkaError, code=72, label="LISTENER_NOT_FOUND", retriable=True): ...


class TopicDeletionDisabledError(KafkaError, code=73, label="TOPIC_DELETION_DISABLED"): ...


class FencedLeaderEpochError(KafkaError, code=74, label="FENCED_LEADER_EPOCH", retriable=True): ...


class UnknownLeaderEpochError(KafkaError, code=75, label="UNKNOWN_LEADER_EPOCH", retriable=True): ...


class UnsupportedCompressionTypeError(KafkaError, code=76, label="UNSUPPORTED_COMPRESSION_TYPE"): ...


class StaleBrokerEpochError(KafkaError, code=77, label="STALE_BROKER_EPOCH"): ...


class OffsetNotAvailableError(KafkaError, code=78, label="OFFSET_NOT_AVAILABLE", retriable=True): ...


class MemberIdRequiredError(KafkaError, code=79, label="MEMBER_ID_REQUIRED"): ...


class PreferredLeaderNotAvailableError(KafkaError, code=80, label="PREFERRED_LEADER_NOT_AVAILABLE", retriable=True): ...


class GroupMaxSizeReachedError(KafkaError, code=81, label="GROUP_MAX_SIZE_REACHED"): ...


class FencedInstanceIdError(KafkaError, code=82, label="FENCED_INSTANCE_ID"): ...


class EligibleLeadersNotAvailableError(KafkaError, code=83, label="ELIGIBLE_LEADERS_NOT_AVAILABLE", retriable=True): ...


class ElectionNotNeededError(KafkaError, code=84, label="ELECTION_NOT_NEEDED", retriable=True): ...


class NoReassignmentInProgressError(KafkaError, code=85, label="NO_REASSIGNMENT_IN_PROGRESS"): ...


class GroupSubscribedToTopicError(KafkaError, code=86, label="GROUP_SUBSCRIBED_TO_TOPIC"): ...


class InvalidRecordError(KafkaError, code=87, label="INVALID_RECORD"): ...


class UnstableOffsetCommitError(KafkaError, code=88, label="UNSTABLE_OFFSET_COMMIT", retriable=True): ...


class ThrottlingQuotaExceededError(KafkaError, code=89, label="THROTTLING_QUOTA_EXCEEDED", retriable=True): ...


class ProducerFencedError(KafkaError, code=90, label="PRODUCER_FENCED"): ...


class ResourceNotFoundError(KafkaError, code=91, label="RESOURCE_NOT_FOUND"): ...


class DuplicateResourceError(KafkaError, code=92, label="DUPLICATE_RESOURCE"): ...


class UnacceptableCredentialError(KafkaError, code=93, label="UNACCEPTABLE_CREDENTIAL"): ...


class InvalidUpdateVersionError(KafkaError, code=95, label="INVALID_UPDATE_VERSION"): ...


class UnknownTopicIdError(KafkaError, code=100, label="UNKNOWN_TOPIC_ID", retriable=True): ...


class DuplicateBrokerRegistrationError(KafkaError, code=101, label="DUPLICATE_BROKER_REGISTRATION"): ...


class BrokerIdNotRegisteredError(KafkaError, code=102, label="BROKER_ID_NOT_REGISTERED"): ...


class InconsistentTopicIdError(KafkaError, code=103, label="INCONSISTENT_TOPIC_ID", retriable=True): ...


class InconsistentClusterIdError(KafkaError, code=104, label="INCONSISTENT_CLUSTER_ID"): ...


class TransactionalIdNotFoundError(KafkaError, code=105, label="TRANSACTIONAL_ID_NOT_FOUND"): ...


class FetchSessionTopicIdError(KafkaError, code=106, label="FETCH_SESSION_TOPIC_ID_ERROR", retriable=True): ...


class IneligibleReplicaError(KafkaError, code=107, label="INELIGIBLE_REPLICA"): ...


class NewLeaderElectedError(KafkaError, code=108, label="NEW_LEADER_ELECTED"): ...


class FencedMemberEpochError(KafkaError, code=110, label="FENCED_MEMBER_EPOCH"): ...


class UnreleasedInstanceIdError(KafkaError, code=111, label="UNRELEASED_INSTANCE_ID"): ...


class UnsupportedAssignorError(KafkaError, code=112, label="UNSUPPORTED_ASSIGNOR"): ...


class StaleMemberEpochError(KafkaError, code=113, label="STALE_MEMBER_EPOCH"): ...


class TransactionAbortableError(KafkaError, code=120, label="TRANSACTION_ABORTABLE"): ...


class DuplicateVoterError(KafkaError, code=126, label="DUPLICATE_VOTER"): ...


class VoterNotFoundError(KafkaError, code=127, label="VOTER_NOT_FOUND"): ...


class InvalidRegularExpressionError(KafkaError, code=128, label="INVALID_REGULAR_EXPRESSION"): ...


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


def with_clause(error: E, clause: str) -> E:
    """Return the same error with one more clause in its text."""
    error.args = (f"{error}; {clause}",)
    return error


def as_value(error: E) -> E:
    """Return the same error without its traceback, cause and context, which would keep whole frames alive."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


def file_sentence(error: OSError) -> str:
    """Return the file and the reason of an error of the operating system, without its number."""
    if error.filename is None:
        return error.strerror or str(error)
    return f"{error.filename}: {error.strerror}"
