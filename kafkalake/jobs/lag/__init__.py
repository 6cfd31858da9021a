"""Lag of consumer groups: `command`, `report` (pure), `next_record` (the record a group reads next), `page` and `plot`."""
