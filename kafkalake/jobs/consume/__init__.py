"""Copies topics: `command`, `consumption` (a group's batches), `loop` (a stream of them), `output`, `forced_output`."""
