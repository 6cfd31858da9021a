"""The feature of brokers that take batches of columns (`column_batch`), as ApiVersions lists it to kafkalake's own clients alone.

Nobody else sees it, so that what Kafka's clients and tools show is what a Kafka broker shows. A module of its own, as clients that
send no records load no compiled code.
"""

FEATURE, LEVEL = "columns.version", 1
