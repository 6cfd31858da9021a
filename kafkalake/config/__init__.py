"""Settings: `broker` and `topics` define them, `setting` is one definition, `values` parses, `layers` has the layers of a broker,
`membership` has those of a member of a cluster, `listener` the addresses that they describe, `accepted` lists Kafka settings
without effect, `sources` reads them from the environment and `properties` from files, `providers` resolves references, `stored`
reads a lake's stored settings, `value_schema` parses the schema of a topic's values.
"""
