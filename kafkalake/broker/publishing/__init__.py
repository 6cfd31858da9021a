"""Publishing from the logs to Delta: `partitions` and `journals` collect changes, `schedule` (pure) decides when to commit."""
