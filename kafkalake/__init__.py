"""kafkalake: Kafka topics that already are lakehouse tables.

Any Kafka client writes and reads the topics. Spark, DuckDB and Polars query the very same Arrow files, up to the
last acknowledged record. `ARCHITECTURE.md` follows a record through the system.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkalake.client.administration.blocking import Admin
    from kafkalake.client.consuming.consumer import Consumer
    from kafkalake.client.consuming.exactly_once_sink import ExactlyOnceSink
    from kafkalake.client.producing.producer import Producer

__version__ = "0.1.0"
__all__ = ["Admin", "Consumer", "ExactlyOnceSink", "Producer", "__version__"]

_EXPORTS = {
    "Admin": "kafkalake.client.administration.blocking",
    "Consumer": "kafkalake.client.consuming.consumer",
    "ExactlyOnceSink": "kafkalake.client.consuming.exactly_once_sink",
    "Producer": "kafkalake.client.producing.producer",
}
"""Names that are imported when they are first used: `import kafkalake` alone costs nothing."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "aio":
        return import_module("kafkalake.aio")
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'kafkalake' has no attribute '{name}'")
    return getattr(import_module(module), name)
