"""The log of a partition on disk: index -> segment -> log, each noun built on the one before it.

    files, open_files      the disk as a handful of calls; a bound on open descriptors across all partitions
    index                  self-checked entries that say where to start reading
    message_writer         producer batches -> the bytes of one Arrow message
    segment, active_segment  one Arrow file that is read; the one that is appended to
    producer_state         idempotence and transactions, pure
    state, snapshot, leader_epochs   small checksummed files beside the segments
    recovery               what a crash left behind -> what is true
    log                    a partition's log: append, read, roll, high watermark
    segment_reader, verify, dump     read-only, for any process

Imports of kafkalake: `record`, `errors`, `clock`.
"""
