"""Settings: `definitions` the one table, `setting` one of them, `broker`, `topics` and `groups` typed views, `accepted` what
clients may set, `providers` values from elsewhere, `stored` what is kept.
"""
