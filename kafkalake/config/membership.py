"""Settings of a broker as a member of a cluster: its id and roles, its addresses, its session with the controller.

They are a part of `BrokerConfig`. Source of names, types and defaults: Apache Kafka 4.1, "Broker Configs".
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkalake.config.setting import Int, Long, Names, define
from kafkalake.errors import ConfigurationError

BROKER_ROLE, CONTROLLER_ROLE = "broker", "controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipConfig:
    """The settings. Fields are Kafka's names with underscores."""

    advertised_listeners: str | None = define(
        None,
        "What clients are told to connect to, PLAINTEXT://HOST:PORT; where it is not set, the address that is listened on, or "
        "the machine's name where that is every address.",
    )
    auto_leader_rebalance_enable: bool = define(
        True, "Whether the controller gives leadership back to preferred replicas, as often as it looks for imbalance."
    )
    broker_connection_fencing_enable: bool = define(
        True,
        "Whether a broker is fenced at once when its connections are reset and new ones are refused, before its session times "
        "out. kafkalake's own.",
    )
    broker_heartbeat_interval_ms: Int = define(
        2_000, "How often this broker sends a heartbeat to the controller.", minimum=1
    )
    broker_id: Int | None = define(None, "The id of this broker.", option="--broker-id")
    broker_rack: str | None = define(None, "The rack that this broker reports.")
    broker_session_timeout_ms: Int = define(
        9_000, "A broker whose heartbeats do not reach the controller for so long is fenced.", minimum=1
    )
    controlled_shutdown_enable: bool = define(
        True, "Whether a broker that stops in order first gives its leadership to other replicas."
    )
    controller_quorum_election_timeout_ms: Int = define(
        1_000,
        "How long brokers that do not reach the controller wait, at most, before one of them becomes the controller.",
        minimum=1,
    )
    default_replication_factor: Int = define(1, "Replicas of a topic that is created without saying.")
    initial_broker_registration_timeout_ms: Int = define(
        60_000,
        "How long a start waits until the controller has registered this broker; then the start fails.",
        minimum=1,
    )
    inter_broker_listener_name: str | None = define(
        None, "The listener at which other brokers connect to this one; where it is not set, the first of listeners."
    )
    leader_imbalance_check_interval_seconds: Long = define(
        300, "How often the controller looks for leaders that are not their partitions' preferred replicas.", minimum=1
    )
    leader_imbalance_per_broker_percentage: Int = define(
        10,
        "The share of a broker's partitions, in percent, that others may lead before their leadership is given back. Kafka's "
        "up to release 3.9.",
        minimum=0,
        maximum=100,
    )
    listeners: str | None = define(None, "Where the broker listens.", option="--listen")
    node_id: Int | None = define(None, "The id of this broker.", option="--broker-id")
    process_roles: Names = define(
        "broker,controller",
        "What this process is: a broker, which has partitions; a controller, which may be elected to decide about the cluster; "
        "or both.",
        choices=(BROKER_ROLE, CONTROLLER_ROLE),
    )


def check_membership(config: MembershipConfig) -> None:
    """Raise `ConfigurationError` if the settings contradict each other."""
    if config.broker_heartbeat_interval_ms >= config.broker_session_timeout_ms:
        raise ConfigurationError("broker.heartbeat.interval.ms must be less than broker.session.timeout.ms")
    if config.inter_broker_listener_name not in (None, "PLAINTEXT"):
        raise ConfigurationError(
            f"Invalid value {config.inter_broker_listener_name} for configuration inter.broker.listener.name: "
            "the one listener is PLAINTEXT"
        )
    if config.default_replication_factor not in (1, -1):
        raise ConfigurationError(
            "Invalid value for configuration default.replication.factor: one broker holds one replica"
        )
