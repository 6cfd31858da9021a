"""The version of Spark that the connector is for: Spark changes its Python and Java interfaces for data sources in each version."""

from __future__ import annotations

from kafkalake.errors import ConfigurationError

SPARK = "4.2"


def require_spark(version: str) -> None:
    """Raise `ConfigurationError` if `version`, such as 4.2.0, is another Spark."""
    if not version.startswith(f"{SPARK}."):
        raise ConfigurationError(f"kafkalake needs Spark {SPARK}, and this is Spark {version}")
