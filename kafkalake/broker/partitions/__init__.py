"""Partitions and their logs: `topics`, `partition`, `log_directory`, `append_queue`, `fetch` with `fetch_sessions`, `fetched` and
`wire_cache`, `offsets`, `purgatory` with `timing_wheel`, `retention`.
"""
