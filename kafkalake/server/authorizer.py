"""Principals and their authorization. Today every principal may do everything, but handlers check every request.

Each connection has a principal. Handlers check before they access a resource, once per resource, under Kafka's names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Protocol

from kafkalake.config.listener import Listener, SecurityProtocol


@dataclass(frozen=True, slots=True)
class Principal:
    """The principal of a connection, as Kafka writes it: `User:ANONYMOUS`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Return the principal of which `text` is the text. Raise `ValueError` if it is of none."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{text!r} is no principal")
        return cls(kind, name)


ANONYMOUS = Principal("User", "ANONYMOUS")


def authenticate(listener: Listener) -> Principal:
    """Return the principal of a new connection. Its listener's security protocol says how clients prove who they are."""
    match listener.security_protocol:
        case SecurityProtocol.PLAINTEXT:
            return ANONYMOUS


class Operation(Enum):
    """Kafka's operations on resources, numbered as in its access control lists."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Resource(IntEnum):
    """Kinds of resources, numbered as in Kafka's access control lists. Integers, whose hash costs little."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME = "kafka-cluster"

OPERATIONS: dict[Resource, tuple[Operation, ...]] = {
    Resource.TOPIC: (Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
                     Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    Resource.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
                     Operation.ALTER_CONFIGS),
    Resource.CLUSTER: (Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
                       Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE),
}  # fmt: skip
"""The operations on a resource, for responses that list the authorized ones (KIP-430)."""


class Authorizer(Protocol):
    """Authorizes operations. Must be cheap: called on the hot path."""

    def allows(self, principal: Principal, operation: Operation, resource: Resource, name: str) -> bool:
        """Return whether `principal` may do `operation` on the resource of that name."""
        ...


class AllowEverything:
    """No access control."""

    def allows(self, principal: Principal, operation: Operation, resource: Resource, name: str) -> bool:
        return True
