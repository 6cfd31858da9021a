"""Compaction: `command` selects and swaps segments, `key_offsets` finds the newest record of each key in Spark."""
