"""Reads topics from the lake's files, with no engine and no broker. Shared by Spark, `kafkalake.dataset` and the jobs.

read_options     the options of a read, validated: pure
predicate        pushed filters as topics, partitions, offsets, times: pure
snapshot         the lake as it is now or was at a version: segments from Delta, the tail from `state` (I/O)
bounds           start and end of a read in each partition; looked up by `offset_by_time`, `group_positions`
plan             segment slices, split and joined into input partitions: pure
read             the steps of a read, from options to slices
columns          the requested schema, and the record columns that it needs
slice_reader     slices -> Arrow batches; `opened_segment` opens one
json_values      JSON values -> typed columns; `json_texts` is the inverse
positions        offsets of streams and groups: pure; `partition_edges` reads partition starts and ends
scanner          a topic as a `pyarrow.dataset` scanner
topic_settings   the settings of topics
"""
