"""Kafka's messages as typed classes, and the one codec of broker and client.

A class has the fields of all versions that broker or client speak, under kio's names: times are milliseconds, errors are codes,
the null uuid is None. A field that a version lacks has its
default. `tests/wire/test_messages.py` holds the classes to kio's schemas.
"""

from kafkalake.extras import import_kio_without_hypothesis

import_kio_without_hypothesis()
