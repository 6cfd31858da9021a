"""The process of a broker: `node` composes it; `logs`, `log_limits`, `watchdog`, `supervision`, `allocator`, `warm`, `jobs`."""
