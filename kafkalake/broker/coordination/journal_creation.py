"""Creates the topic of a journal on its first use."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from kafkalake.broker.admin.topic_admin import TopicAdmin
from kafkalake.broker.coordination.journal_writer import JournalWriter
from kafkalake.broker.partitions.new_topic import NewTopic
from kafkalake.config.broker import BrokerConfig
from kafkalake.config.topics import TOPIC_SETTINGS
from kafkalake.errors import CoordinatorNotAvailableError, KafkaError, TopicAlreadyExistsError

logger = logging.getLogger(__name__)


class CreatingHost(Protocol):
    """The parts of a broker that create a topic."""

    topic_admin: TopicAdmin

    @property
    def config(self) -> BrokerConfig: ...


def size_setting(segment_bytes: int) -> str:
    """Return the topic setting that accepts this size: Kafka's settings of its journals have no minimum."""
    minimum = TOPIC_SETTINGS["segment.bytes"].minimum
    return "segment.bytes" if minimum is None or segment_bytes >= minimum else "internal.segment.bytes"


async def create_journal(
    host: CreatingHost, name: str, writer: JournalWriter, factor_setting: str, config: Mapping[str, str | None]
) -> bool:
    """Create the topic of a journal, with the partitions of `writer`, and return whether it did not exist.

    `factor_setting`: the name of the setting of its replicas. Raise `CoordinatorNotAvailableError` if it is not there afterwards.
    """
    new = NewTopic(name, writer.partitions, host.topic_admin.plans.journal_factor(factor_setting), config=config)
    try:
        await host.topic_admin.create(new, timeout_ms=host.config.request_timeout_ms)
    except TopicAlreadyExistsError as error:
        # In Delta alone it is left by a creation of unknown outcome: it is removed and created again.
        if writer.topic is None:
            raise CoordinatorNotAvailableError from error
        return False
    except KafkaError as error:
        logger.warning("%s not created error=%s", name, error)
        raise CoordinatorNotAvailableError from error
    return True
