"""Topics that the broker keeps its own journals in: every reader may have them, and must ask for them by name.

Clients leave them out of subscriptions by pattern, as Kafka's consumers do (`exclude.internal.topics`).
"""

from __future__ import annotations

GROUP_JOURNAL = "__consumer_offsets"
TRANSACTION_JOURNAL = "__transaction_state"
INTERNAL = frozenset({GROUP_JOURNAL, TRANSACTION_JOURNAL})
"""Topics that the broker writes itself; clients may read them."""
