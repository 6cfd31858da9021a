"""Partitions and their logs: `topics`, `partition`, `append_queue`, `fetch`, `purgatory` with its `timing_wheel`,
`retention`.
"""
