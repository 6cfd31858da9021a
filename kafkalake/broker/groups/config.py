"""Settings of the group coordinator, with Kafka's names (dots as underscores) and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from kafkalake.config.broker import BrokerConfig
from kafkalake.config.part import part_of


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of the group coordinator. `group_new_member_join_timeout_ms` limits the join of a new member (KIP-394)."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    group_new_member_join_timeout_ms: int = 300_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    group_member_metadata_max_bytes: int = 1 << 20
    group_metadata_max_bytes: int = 32 << 20
    group_coordinator_metadata_max_bytes: int = 256 << 20
    group_coordinator_offsets_max_bytes: int = 1 << 30
    group_coordinator_append_linger_ms: int = 0
    group_coordinator_groups_max: int = 1_000_000
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        """Return the coordinator's settings from the broker's."""
        return part_of(
            config,
            cls,
            group_consumer_migration_policy=config.group_consumer_migration_policy.lower(),
            group_consumer_assignors=tuple(
                dict.fromkeys(name.strip() for name in config.group_consumer_assignors.split(","))
            ),
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        )

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session timeout of members, for groups without their own setting."""
        return self.group_consumer_session_timeout_ms

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval of members, for groups without their own setting."""
        return self.group_consumer_heartbeat_interval_ms
