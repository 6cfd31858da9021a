"""Topics as rows of the table `topics`."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping

from kafkalake.broker.partitions.topics import Topic
from kafkalake.cluster.election import ElectionRules, RulesOf
from kafkalake.config.layers import Settings
from kafkalake.config.setting import Value
from kafkalake.config.setting_texts import format_value
from kafkalake.config.stored import parse_stored_overrides
from kafkalake.metadata.tables.schemas import TopicRow

logger = logging.getLogger(__name__)


def topic_of(row: TopicRow, settings: Settings) -> Topic:
    """Return a topic from its metadata row, without partitions. Settings no longer valid are left out."""
    overrides, problems = parse_stored_overrides(row.config)
    for problem in problems:
        logger.warning("topic setting ignored topic=%s error=%s", row.topic, problem)
    config = settings.topic(overrides)
    return Topic(row.topic, uuid.UUID(row.topic_id), overrides, config, row.created_at_ms)


def election_rules_of(rows: Iterable[TopicRow], settings: Settings) -> RulesOf:
    """Return the rules of elections by topic id, Kafka's defaults for topics without a row."""
    rules = {uuid.UUID(row.topic_id): topic_of(row, settings).election_rules for row in rows}
    return lambda topic_id: rules.get(topic_id, ElectionRules())


def overrides_as_text(overrides: Mapping[str, Value]) -> dict[str, str]:
    """Return a topic's settings as text, as stored and shown."""
    return {name: format_value(value) or "" for name, value in overrides.items()}


def topic_row(topic: Topic, partitions: int, overrides: Mapping[str, Value] | None = None) -> TopicRow:
    """Return a topic's metadata row."""
    config = overrides_as_text(topic.overrides if overrides is None else overrides)
    return TopicRow(topic.name, str(topic.topic_id), partitions, config, topic.created_at_ms)
