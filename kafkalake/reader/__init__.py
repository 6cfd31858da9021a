"""Topics read from the lake's files, with no engine and no broker: what Spark, `kafkalake.dataset` and the jobs share.

read_options     what the user asked for, checked: pure
predicate        what pushed filters leave: topics, partitions, offsets, times: pure
snapshot         the lake as it is now or was at a version: segments from Delta, the tail from `state` (I/O)
bounds           where a read starts and ends in each partition; `offset_by_time`, `group_positions` look it up
plan             segment slices, split and joined into input partitions: pure
read             the steps of a read, from options to slices
columns          the schema asked for, and which record columns it takes
slice_reader     slices -> Arrow batches; `segment_scan` reads one segment
json_values      values that are JSON -> typed columns; `json_texts` their texts
positions        offsets of streams and groups: pure; `partition_edges` where partitions begin and end
scanner          a topic as a `pyarrow.dataset` scanner
topic_settings   the settings of topics
"""
