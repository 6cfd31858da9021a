"""Copies of a topic: `command`, `consumption` (batches of a group), `loop` (a stream of them), `output`, `forced_output`."""
