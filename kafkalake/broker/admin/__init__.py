"""Administration: topics (`topic_admin`, `topic_names`, `mutation_rate`), `broker_settings` and `producer_ids`."""
