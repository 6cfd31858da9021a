"""Administration: topics (`topic_admin`, `topic_plans`, `topic_rows`), their names and rate, `broker_settings`, `producer_ids`."""
