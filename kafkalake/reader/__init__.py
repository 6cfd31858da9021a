"""Reads topics from the lake's files, with no engine and no broker. Shared by Spark, `kafkalake.dataset` and the jobs.

read_options     the options of a read, validated: pure
predicate        pushed filters as topics, partitions, offsets, times: pure
read             a read as one value: options, partitions, offsets
live_partitions  the leader's directory of each partition and its `state`, for readers and jobs (I/O)
snapshot         the lake as it is now or was at a version: segments from Delta, the tail from `state` (I/O)
bounds           begins a read: snapshot, start and end in each partition, from `offset_by_time`, `group_positions`
plan             a read's segment slices, split and joined into input partitions: pure
columns          the requested schema, and the record columns that it needs
slice_reader     slices -> Arrow batches; `opened_segment` opens one
json_values      JSON values -> typed columns; `json_texts` is the inverse
avro_values      Avro values -> typed columns; `avro_records` is the inverse, `avro_encoding` beneath both
positions        offsets of streams and groups: pure; `partition_edges` reads partition starts and ends
scanner          a topic as a `pyarrow.dataset` scanner
topic_settings   the settings of topics
"""
