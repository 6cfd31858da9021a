"""Settings of a broker as a member of a cluster: its id and roles, its addresses, its session with the controller.

They are a part of `BrokerConfig`. Source of names, types and defaults: Apache Kafka 4.1, "Broker Configs".
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkalake.config.setting import Int, Long, Names, define
from kafkalake.errors import ConfigurationError

DEFAULT_PROTOCOL_MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
BROKER_ROLE, CONTROLLER_ROLE = "broker", "controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipConfig:
    """The settings. Fields are Kafka's names with underscores."""

    advertised_listeners: str | None = define(
        None,
        "The addresses that clients are told, NAME://HOST:PORT by the names of listeners; where it is not set, those that are "
        "listened on, or the machine's name where that is every address. A listener that it does not name is told to nobody, "
        "but for a controller's.",
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
    broker_id: Int | None = define(None, "The id of this broker, as node.id.", minimum=0)
    broker_rack: str | None = define(None, "The rack that this broker reports.")
    broker_session_timeout_ms: Int = define(
        9_000, "A broker whose heartbeats do not reach the controller for so long is fenced.", minimum=1
    )
    controlled_shutdown_enable: bool = define(
        True, "Whether a broker that stops in order first gives its leadership to other replicas."
    )
    controller_listener_names: str | None = define(
        None,
        "Listeners of controllers, which answer what Kafka's controllers do. Brokers reach the controller at the inter-broker "
        "listener, which none of these is unless there are no others.",
    )
    controller_quorum_election_timeout_ms: Int = define(
        1_000,
        "How long brokers that do not reach the controller wait, at most, before one of them becomes the controller.",
        minimum=1,
    )
    default_replication_factor: Int = define(
        1,
        "Replicas of a topic that is created without saying. As in Kafka, none is created until there are as many brokers.",
    )
    initial_broker_registration_timeout_ms: Int = define(
        60_000,
        "How long a start waits until the controller has registered this broker; then the start fails.",
        minimum=1,
    )
    inter_broker_listener_name: str | None = define(
        None,
        "The listener at which other brokers connect to this one, and what works on the same lake; where it is not set, "
        "PLAINTEXT, or the first where none has that name.",
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
    listener_security_protocol_map: str = define(
        DEFAULT_PROTOCOL_MAP, "The security protocol of each listener, NAME:PROTOCOL; PLAINTEXT alone is spoken."
    )
    listeners: str = define(
        "PLAINTEXT://127.0.0.1:9092",
        "Where the broker listens, NAME://HOST:PORT, several if they differ in name and port. Without a host: at every address. "
        "Port 0: a free one.",
    )
    node_id: Int | None = define(None, "The id of this broker, 0 where neither this nor broker.id is set.", minimum=0)
    process_roles: Names = define(
        "broker,controller",
        "What this process is: a broker, which has partitions; a controller, which may be elected to decide about the cluster; "
        "or both. A controller alone has only listeners of controller.listener.names.",
        choices=(BROKER_ROLE, CONTROLLER_ROLE),
    )
    security_inter_broker_protocol: str = define(
        "PLAINTEXT", "The security protocol between brokers.", choices=("PLAINTEXT",)
    )

    @property
    def id(self) -> int:
        """The broker's id."""
        return next((each for each in (self.node_id, self.broker_id) if each is not None), 0)

    @property
    def is_broker(self) -> bool:
        """True if this process is a broker."""
        return BROKER_ROLE in self.process_roles

    @property
    def is_voter(self) -> bool:
        """True if this process may be elected as the controller."""
        return CONTROLLER_ROLE in self.process_roles


def check_membership(config: MembershipConfig) -> None:
    """Raise `ConfigurationError` if the settings contradict each other."""
    if config.broker_heartbeat_interval_ms >= config.broker_session_timeout_ms:
        raise ConfigurationError("broker.heartbeat.interval.ms must be less than broker.session.timeout.ms")
    if config.broker_id is not None and config.broker_id != config.id:
        raise ConfigurationError("node.id must have the same value as broker.id, where both are set")
