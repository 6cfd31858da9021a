"""Headers of records that are delivered later, by name.

Any Kafka client sets them. Times are decimal digits in ASCII, ids any bytes.
"""

from __future__ import annotations

DELIVER_AT = "kafkalake-deliver-at"
"""When a record is due, in milliseconds since 1970."""
DELAY_MS = "kafkalake-delay-ms"
"""How long after it was received a record is due, in milliseconds. Of a delivered record: how long it was meant to wait."""
DELAY_ID = "kafkalake-delay-id"
"""By what a record that waits can be cancelled: with a record of this id, to the same partition, whose value is null."""
ORIGINAL_TIMESTAMP = "kafkalake-original-timestamp"
"""Of a delivered record: the timestamp that its producer gave it, in milliseconds since 1970."""
