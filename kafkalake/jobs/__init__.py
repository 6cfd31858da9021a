"""Jobs that run on a lake with or without a broker. Each has a `main(arguments) -> exit code`. `registry` lists them by name.

retention, maintenance           remove unneeded data and files
compaction, lag, consume         packages of their own
frame, lock, record, progress    shared by all jobs: start and end, mutual exclusion, rows in `job_runs`, output
signals, topics                  SIGTERM and Ctrl-C; the topics that arguments name
cleaned_partitions               partition data that retention and compaction decide on
error_sentence, webhook          errors and alerts for users
"""
