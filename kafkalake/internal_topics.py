"""Topics in which the broker keeps its own journals. Clients may read them, but must name them.

Clients exclude them from subscriptions by pattern, as Kafka's consumers do (`exclude.internal.topics`).
"""

from __future__ import annotations

GROUP_JOURNAL = "__consumer_offsets"
TRANSACTION_JOURNAL = "__transaction_state"
DELAYED_JOURNAL = "__delayed"
INTERNAL = frozenset({GROUP_JOURNAL, TRANSACTION_JOURNAL, DELAYED_JOURNAL})
"""Topics written by the broker itself and readable by clients."""

CLUSTER_METADATA = "__cluster_metadata"
"""Kafka's journal of its controllers. There is none here, and no other topic may have its name."""
