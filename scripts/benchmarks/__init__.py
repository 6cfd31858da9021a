"""kafkalake measured against Apache Kafka 4.1.1, side by side in one run; `scripts/benchmark --help`.

Each measure is a module with one function, `measure(plan) -> Iterable[Row]`. Both brokers run on the same machine and disk, are
warmed by the same work, and take turns within a round, the first turn going to each in turn, so that a slow minute of the
machine hits both. A row keeps every round's figure; the table shows medians, and the ratio with its smallest and largest round.
"""
