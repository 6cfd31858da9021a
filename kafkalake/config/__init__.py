"""Settings: `broker` and `topics` define them, `setting` is one definition, `values` parses, `layers` has the layers of a broker,
`accepted` lists Kafka settings without effect, `providers` resolves references, `stored` reads a lake's stored settings,
`value_schema` parses the schema of a topic's values.
"""
