"""Settings: `broker` and `topics` define them, `setting` is one definition, `values` parses, `layers` has the layers of a broker,
`membership` has those of a member of a cluster, `listener` the addresses that they describe, `accepted` lists Kafka settings
without effect, `sources` reads them from the environment and `properties` from files, `providers` resolves references, `stored`
reads a lake's stored settings, `topic_values` has those of a topic's values, whose schema `value_schema` (DDL) and `avro_schema`
(Avro's JSON) parse.
"""
