"""ALTER TABLE of a topic's table makes two changes, of settings and of partitions: it can be repeated, and says what was done."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from kafka_reference import Kafkalake
from lake_catalog import Statement, refused

from kafkalake.client.administration.blocking import Admin
from kafkalake.client.administration.configs import TOPIC_RESOURCE
from kafkalake.errors import InvalidPartitionsError
from kafkalake.spark.planner.statements import alter_table


def state(broker: Kafkalake, topic: str) -> tuple[int, str | None]:
    """The number of partitions, and `retention.ms`."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        entries = admin.describe_configs(TOPIC_RESOURCE, [topic])[topic]
        retention = next(entry.value for entry in entries if entry.name == "retention.ms")
        return len(admin.describe_topic(topic).partitions), retention


def test_a_statement_that_was_carried_out_can_be_repeated(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    sql(f"CREATE TABLE lake.{clicks}")
    for retention in ("7200000", "7200000", "3600000"):
        sql(f"ALTER TABLE lake.{clicks} SET TBLPROPERTIES ('partitions' = '4', 'retention.ms' = '{retention}')")
        assert state(broker, clicks) == (4, retention)
    assert "would not be an increase" in refused(
        sql, f"ALTER TABLE lake.{clicks} SET TBLPROPERTIES ('partitions' = '3', 'retention.ms' = '5')"
    )
    assert state(broker, clicks) == (4, "3600000")


def test_partitions_that_are_refused_behind_the_settings_say_so(
    sql: Statement, broker: Kafkalake, clicks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client adds partitions between the check of the statement and its second change."""
    create_partitions = Admin.create_partitions

    def overtaken(admin: Admin, topic: str, count: int, *, validate_only: bool = False) -> None:
        if not validate_only:
            create_partitions(admin, topic, count + 1)
        create_partitions(admin, topic, count, validate_only=validate_only)

    sql(f"CREATE TABLE lake.{clicks}")
    monkeypatch.setattr(Admin, "create_partitions", overtaken)
    question = {"lake": str(broker.lake), "topic": clicks, "unset": [], "add": []}
    with pytest.raises(InvalidPartitionsError, match=f"increase; the settings of topic {clicks} are changed$"):
        alter_table({**question, "set": {"partitions": "3", "retention.ms": "7200000"}})
    assert state(broker, clicks) == (4, "7200000")
    with pytest.raises(InvalidPartitionsError, match=r"increase$"):
        alter_table({**question, "set": {"partitions": "4"}})


KILLED = """
import json, os, signal, sys
from kafkalake.client.administration.blocking import Admin
from kafkalake.spark.planner.statements import alter_table

create_partitions = Admin.create_partitions

def killed(admin, topic, count, *, validate_only=False):
    if not validate_only:
        os.kill(os.getpid(), signal.SIGKILL)
    create_partitions(admin, topic, count, validate_only=validate_only)

Admin.create_partitions = killed
alter_table(json.loads(sys.argv[1]))
"""


@pytest.mark.process
def test_a_statement_that_was_killed_between_its_changes_is_completed_when_it_is_repeated(
    broker: Kafkalake, clicks: str
) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic(clicks, partitions=1, config={"value.schema": "user STRING", "retention.bytes": "5000000"})
    changes = {
        "set": {"partitions": "3", "retention.ms": "7200000"},
        "unset": ["retention.bytes"],
        "add": [{"name": "ms", "type": "INT", "comment": None}],
    }
    question = {"lake": str(broker.lake), "topic": clicks, **changes}
    ended = subprocess.run([sys.executable, "-c", KILLED, json.dumps(question)], timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert state(broker, clicks) == (1, "7200000")
    for _ in range(2):
        alter_table(question)
        assert state(broker, clicks) == (3, "7200000")
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            found = {entry.name: entry.value for entry in admin.describe_configs(TOPIC_RESOURCE, [clicks])[clicks]}
        assert (found["value.schema"], found["retention.bytes"]) == ("`user` STRING, `ms` INT", "-1")
