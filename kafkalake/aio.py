"""The clients for asyncio, the twins of those in `kafkalake`: the same core, driven by the running event loop."""

from __future__ import annotations

from kafkalake.client.administration.aio import Admin
from kafkalake.client.consuming.aio import Consumer
from kafkalake.client.producing.aio import Producer

__all__ = ["Admin", "Consumer", "Producer"]
