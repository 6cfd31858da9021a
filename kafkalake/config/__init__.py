"""Settings: `definitions`, `topics` and `groups` are the tables, `setting` is one entry, `broker` has parsing and typed views,
`accepted` lists Kafka settings without effect, `providers` resolves references, `stored` reads a lake's stored settings.
"""
