"""Who may do what. Today everybody may do everything; the question is asked on every request from the first day.

A principal travels with each connection; handlers ask before they touch a resource, once per resource, under Kafka's names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a connection speaks for, as Kafka writes it: `User:ANONYMOUS`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


class Operation(Enum):
    """Kafka's operations on resources; the numbers are those of its access control lists."""

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


class Resource(Enum):
    """Kinds of resources, numbered as in Kafka's access control lists."""

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
"""The operations that there are on a resource, of those that answers tell the allowed ones of (KIP-430)."""


class Authorizer(Protocol):
    """Decides. Cheap: asked on the hot path."""

    def allows(self, principal: Principal, operation: Operation, resource: Resource, name: str) -> bool:
        """Whether `principal` may do `operation` on the resource of that name."""
        ...


class AllowEverything:
    """No access control."""

    def allows(self, principal: Principal, operation: Operation, resource: Resource, name: str) -> bool:
        return True
