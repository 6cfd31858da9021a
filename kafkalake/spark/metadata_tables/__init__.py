"""Tables about a topic, `lake.clicks.lag`, and about all topics of a lake, `lake.system.lag`, for Spark's catalogue.

definitions   which there are, their columns, and which of them have versions
logs          segments, partitions
groups        groups, lag
history       what happened to a topic, by versions
producers     producers, transactions
delayed       what waits to be delivered later
jobs          what jobs did

Rows are read from the lake's files when a query asks for them, so also with no broker running.
"""
