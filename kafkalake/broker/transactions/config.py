"""Settings of the transaction coordinator, with Kafka's names (dots as underscores) and defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Settings, and four internal limits. `transactional_ids_max_bytes`: of all ids together, which may be 32 KB each. `retry_ms`:
    delay before a failed marker, completion or abort is retried. `wait_ms`: longest wait of a request for the step before it,
    instead of a retry by the client. `remote_wait_ms`: the same for a coordinator that is another broker.
    """

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    transactional_ids_max: int = 1_000_000
    transactional_ids_max_bytes: int = 256 << 20
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    retry_ms: int = 100
    wait_ms: int = 100
    remote_wait_ms: int = 10_000
