"""kafkalake: Kafka topics that already are lakehouse tables.

Any Kafka client writes and reads the topics. Spark, DuckDB and Polars query the very same Arrow files, up to the
last acknowledged record. `ARCHITECTURE.md` follows a record through the system.
"""

__version__ = "0.1.0"
