"""The log of a partition on disk: index -> segment -> log, each noun built on the one before it.

    files, faulty_files, open_files     the disk as a handful of calls, one that fails on purpose, a bound on descriptors
    index, txn_index                    self-checked entries: where to start reading; aborted transactions
    append_group, message_writer        producer batches are decided on, then become the bytes of one Arrow message
    segment, active_segment, segments   an Arrow file that is read; the one that is appended to; all of a log
    segment_kernels, scanner, replay    compiled walks; everything in a file, verified; what it means for the files beside it
    producer_state                      idempotence and transactions, pure
    state, snapshot, leader_epochs      small checksummed files beside the segments
    partition_metadata                  which topic a directory belongs to
    durability, deleted_files           what still has to be forced to the disk; what still has to be unlinked
    recovery, earlier_segments          what a crash left behind -> what is true
    timestamp_search                    time -> offset
    generations, cleaning, rewrite      what jobs write in place of sealed segments: what counts, what is cleaned, what is left
    log, sealed_segment, config         a partition's log: append, read, roll, high watermark; what others are told
    segment_reader, verify, dump        read-only, for any process

Imports of kafkalake: `record`, `errors`, `clock`.
"""
