"""The settings of an administration client. Source: Apache Kafka 4.1, "Admin Client Configs"."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalake.client.network.settings import NetworkSettings
from kafkalake.config.setting import INT_MAX, Int, define


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings(NetworkSettings):
    """Settings of an administration client. Fields are Kafka's names with underscores."""

    default_api_timeout_ms: Int = define(60_000, "How long an operation may take, with all retries.", minimum=0)
    retries: Int = define(INT_MAX, "How often a request is sent again.", minimum=0)
