"""The broker process: `node` (composition root), `logs`, `log_limits`, `watchdog`, `supervision`, `allocator`, `warm`, `jobs`."""
