"""Compaction: `command` finds and swaps segments, `key_offsets` has Spark find the newest record of each key."""
