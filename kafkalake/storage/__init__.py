"""The log of a partition on disk: index -> segment -> log, each layer built on the one before it.

    files, open_files                   the disk interface, a bound on descriptors
    index, txn_index                    checksummed entries: read positions, aborted transactions
    append_group, message_writer        check producer batches, then encode them as one Arrow message
    segment, active_segment, segments   an Arrow file being read, the one being appended to, all of a log
    segment_reader                      the one loop over a segment, and the opener of segments for any process
    segment_kernels, scanner, replay    compiled walks, verified scans, index content rebuilt from messages
    producer_state                      idempotence and transactions, pure
    state, snapshot, leader_epochs      small checksummed files beside the segments
    partition_metadata                  the topic id of a directory
    durability, log_force, deleted_files files to fsync, one thread at a time; files to unlink
    recovery, sealed_segment_recovery          recovery from an unclean shutdown
    timestamp_search                    time -> offset
    generations, cleaning, rewrite      segments rewritten by jobs: the files in use, the compaction decision, the rewrite
    log_access, log_state, log_segments what the parts of a log share, its offsets and producers, its segments as they change
    replica_read, replica_run, log_copy the leader's messages as followers read, verify and write them
    segment_install, clean_shutdown     whole segments copied as files; the note of a clean shutdown
    log_follower                        a log that follows its leader's: segments installed, truncated, started anew
    log_reader, log_start, log          reading a log, moving its start, and the whole: append, read, roll, high watermark
    sealed_segment, config              segment descriptions, settings
    verify, dump                        read-only, for any process

Imports of kafkalake: `record`, `errors`, `clock`.
"""
