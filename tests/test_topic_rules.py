"""What a topic accepts, by its settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkalake.config.layers import Settings
from kafkalake.config.setting import Value
from kafkalake.config.topic_rules import TopicRules

DEFAULT = TopicRules.of(Settings().topic({}))


def test_a_topic_with_default_settings_accepts_what_kafkas_does() -> None:
    assert (
        TopicRules(
            message_bytes_max=1_048_588,
            key_required=False,
            timestamp_before_max_ms=2**63 - 1,
            timestamp_after_max_ms=3_600_000,
            codec=None,
        )
        == DEFAULT
    )


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"max.message.bytes": 100}, {"message_bytes_max": 100}),
        ({"cleanup.policy": "compact"}, {"key_required": True}),
        ({"cleanup.policy": "delete, compact"}, {"key_required": True}),
        ({"compression.type": "lz4"}, {"codec": 3}),
        ({"compression.type": "uncompressed"}, {"codec": 0}),
        ({"message.timestamp.before.max.ms": 5}, {"timestamp_before_max_ms": 5}),
        ({"message.timestamp.after.max.ms": 5}, {"timestamp_after_max_ms": 5}),
        (
            {"message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": 5},
            {"timestamp_before_max_ms": None, "timestamp_after_max_ms": None},
        ),
    ],
)
def test_a_setting_changes_its_rule(settings: dict[str, Value], changed: dict[str, Value]) -> None:
    assert TopicRules.of(Settings().topic(settings)) == replace(DEFAULT, **changed)  # type: ignore[arg-type]
