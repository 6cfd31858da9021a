"""The timestamps that are whole in milliseconds since 1970, as Kafka's, and in microseconds, as those of Spark and Delta."""

from __future__ import annotations

LATEST_TIMESTAMP_MS = (2**63 - 1) // 1000
EARLIEST_TIMESTAMP_MS = -LATEST_TIMESTAMP_MS
"""The bounds of timestamps whose microseconds fit in 64 bits. Kafka has no such lower bound. The years are -290308 to 294247."""
