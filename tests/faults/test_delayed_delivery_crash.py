"""A broker is killed at each step of delayed delivery, by name, and at any moment: 0 lost, 0 doubled, none early."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from delayed_load import DelayedLoad
from kafka_clients import create_topic
from long_runs import first_of
from waiting import wait_until

import kafkalake
from kafkalake.broker.delayed.fault_points import DelayedPoint
from kafkalake.broker.transactions.fault_points import KILL_AT
from kafkalake.delayed_headers import DELAY_MS
from kafkalake.reader.delayed import delayed_records

PARTITIONS = 3
STEPS = (
    DelayedPoint.BATCH_APPENDED,
    DelayedPoint.INTENTS_JOURNALLED,
    DelayedPoint.TARGET_APPENDED,
    DelayedPoint.HAND_IN_JOURNALLED,
    DelayedPoint.FINISHED_JOURNALLED,
)


def test_a_kill_at_any_step_loses_and_doubles_nothing(
    kafkalake_broker: Callable[..., Any], topic: str, tmp_path: Path
) -> None:
    kill_at = tmp_path / "kill-at"
    kill_at.write_text("")
    broker = kafkalake_broker(environment={KILL_AT: str(kill_at)}, settings={"delayed.topic.num.partitions": "2"})
    create_topic(broker.bootstrap_servers, topic, PARTITIONS, {"delayed.delivery.enable": "true"})
    with DelayedLoad(broker.bootstrap_servers, topic, PARTITIONS, delay_ms_max=700) as load:
        for number, step in enumerate(first_of(STEPS, 3)):
            load.go_on(200)
            kill_at.write_text(f"{step.value}:{1 + number % 3}")
            wait_until(lambda: not broker.is_running(), lambda step=step: f"{step} was not reached")
            broker.kill()
            kill_at.write_text("")
            broker.start()
        load.go_on(200)
    load.check()


@pytest.mark.long
def test_a_kill_while_the_journal_is_made_shorter_loses_and_doubles_nothing(
    kafkalake_broker: Callable[..., Any], topic: str, tmp_path: Path
) -> None:
    """Records that wait for an hour among those that are delivered at once: they are carried to the end, and the journal is cut."""
    kill_at = tmp_path / "kill-at"
    kill_at.write_text("")
    settings = {"delayed.topic.num.partitions": "1", "delayed.topic.segment.bytes": "20000"}
    broker = kafkalake_broker(environment={KILL_AT: str(kill_at)}, settings=settings)
    servers, far = broker.bootstrap_servers, []
    for number, step in enumerate((DelayedPoint.CARRIED, DelayedPoint.TRIMMED)):
        name = f"{topic}-{number}"
        create_topic(servers, name, PARTITIONS, {"delayed.delivery.enable": "true"})
        with kafkalake.Producer(bootstrap_servers=servers) as producer:
            for value in range(20):
                far.append(b"%d-%d" % (number, value))
                producer.send(name, b"v", far[-1], partition=0, headers=[(DELAY_MS, b"3600000")])
        with DelayedLoad(servers, name, PARTITIONS, delay_ms_max=700) as load:
            load.go_on(2_000)
        load.check()
        kill_at.write_text(f"{step.value}:1")
        wait_until(lambda: not broker.is_running(), lambda step=step: f"{step} was not reached", 120)
        broker.kill()
        kill_at.write_text("")
        broker.start()
        load.check()
        rows = delayed_records(broker.lake, ["key"]).read_all()
        assert sorted(rows["key"].to_pylist()) == sorted(far)


def test_kills_at_any_moment_lose_and_double_nothing(kafkalake_broker: Callable[..., Any], topic: str) -> None:
    broker = kafkalake_broker(settings={"delayed.topic.num.partitions": "2"})
    create_topic(broker.bootstrap_servers, topic, PARTITIONS, {"delayed.delivery.enable": "true"})
    with DelayedLoad(broker.bootstrap_servers, topic, PARTITIONS) as load:
        load.kill_at_random([broker], lambda: None, at_most=800)
    load.check()
