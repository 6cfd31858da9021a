"""What runs on a lake beside or without a broker, with `main(arguments) -> exit code` each; `registry` has them by name.

retention, maintenance           remove what nothing needs
compaction, lag, consume         rooms of their own
frame, lock, record, progress    what all jobs share: start and end, one at a time, their row in `job_runs`
cleaned_partitions               what retention and compaction know of a partition
error_sentence, webhook          what people are told
"""
