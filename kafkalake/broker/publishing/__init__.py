"""From the logs into Delta: `partitions` and `journals` collect what changed, `schedule` (pure) says when it is committed."""
