"""The broker process: `run`, `node` (composition root) with `opening` and `upkeep`, `watchdog`, `logs`."""
