"""The broker process: `run`, `node` (composition root) with `opening` and `upkeep`, `supervision`, `watchdog`, `logs`."""
