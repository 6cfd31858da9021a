"""The settings that producers, consumers and administration clients share. Source: Apache Kafka 4.1, "Producer Configs"."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalake.config.setting import INT_MAX, Int, Long, define


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Settings of connections, requests and metadata. Fields are Kafka's names with underscores."""

    bootstrap_servers: str = define("127.0.0.1:9092", "Brokers to begin with: host:port, separated by commas.")
    security_protocol: str = define(
        "PLAINTEXT", "The protocol of connections: neither TLS nor SASL.", choices=("PLAINTEXT",)
    )
    client_id: str = define("kafkalake", "The client's name in the broker's logs and metrics.")
    metadata_max_age_ms: Long = define(300_000, "Metadata is refreshed at least this often.", minimum=0)
    reconnect_backoff_ms: Long = define(50, "The pause before a broker is connected to again.", minimum=0)
    reconnect_backoff_max_ms: Long = define(1_000, "What that pause grows to, doubled by each failure.", minimum=0)
    retry_backoff_ms: Long = define(100, "The pause before a failed request is sent again.", minimum=0)
    retry_backoff_max_ms: Long = define(1_000, "What that pause grows to, doubled by each failure.", minimum=0)
    request_timeout_ms: Int = define(30_000, "How long a response is waited for.", minimum=1)
    socket_connection_setup_timeout_ms: Long = define(10_000, "How long opening a connection may take.", minimum=1)
    socket_connection_setup_timeout_max_ms: Long = define(
        30_000, "What that time grows to, doubled by each failure.", minimum=1
    )
    max_in_flight_requests_per_connection: Int = define(
        5, "How many requests of one connection may wait for their responses.", minimum=1, maximum=INT_MAX
    )
    allow_auto_create_topics: bool = define(True, "Whether the broker may create a topic that is asked for.")
