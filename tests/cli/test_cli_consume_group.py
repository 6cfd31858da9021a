"""A member of `consume --group` whose commit is refused: what it has printed is not printed again where it is still its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka_reference import BrokerProcess, create_topic
from waiting import wait_until

from kafkalake import Admin, Consumer, Producer
from kafkalake.cli.consume_group import GroupPositions
from kafkalake.errors import UnknownMemberIdError


@pytest.fixture
def admin(any_broker: BrokerProcess, topic: str) -> Iterator[Admin]:
    create_topic(any_broker, topic)
    with Producer(bootstrap_servers=any_broker.bootstrap_servers) as producer:
        for number in range(9):
            producer.send(topic, b"%d" % number)
    with Admin(bootstrap_servers=any_broker.bootstrap_servers) as opened:
        yield opened


def member_of(broker: BrokerProcess, topic: str) -> GroupPositions:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": f"g-{topic}", "heartbeat.interval.ms": 50}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    member = GroupPositions(consumer, topic, commits=True, exit_at_end=False)
    wait_until(lambda: offsets_read(member))
    return member


def offsets_read(member: GroupPositions) -> list[int]:
    """The offsets that come next."""
    member.turn()
    return [offset for batch in member.consumer.poll_arrow(0.1) for offset in batch.column("offset").to_pylist()]


def is_removed(admin: Admin, topic: str, theirs: int | None) -> bool:
    """Remove the member, as the coordinator does with one that it does not hear of, and commit while it is not back again."""
    group = f"g-{topic}"
    for each in admin.describe_group(group).members:
        admin.remove_member(group, each.member_id)
    try:
        admin.alter_offsets(group, {} if theirs is None else {(topic, 0): theirs})
    except UnknownMemberIdError:
        return False
    return True


@pytest.mark.parametrize("theirs", [None, 3, 7])
def test_a_partition_that_comes_back_goes_on_behind_what_was_printed_unless_others_have_committed(
    admin: Admin, any_broker: BrokerProcess, topic: str, theirs: int | None
) -> None:
    group = f"g-{topic}"
    with closing(member_of(any_broker, topic)) as member:
        member.printed(0, 5)
        for each in admin.describe_group(
            group
        ).members:  # as the coordinator does with members that it does not hear of
            admin.remove_member(group, each.member_id)
        if theirs is not None:
            admin.alter_offsets(group, {(topic, 0): theirs})
        read: list[int] = []
        wait_until(lambda: read.extend(offsets_read(member)) or read)
        assert read[0] == (5 if theirs is None else theirs)
    assert admin.committed_offsets(group)[topic, 0].offset == (5 if theirs is None else theirs)
