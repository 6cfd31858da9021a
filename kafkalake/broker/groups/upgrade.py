"""Conversion of a classic group with members to the consumer protocol: its first records (KIP-848, "Online migration")."""

from __future__ import annotations

from kafkalake.broker.coordination.fields import JournalFormatError
from kafkalake.broker.groups.classic import ClassicGroup
from kafkalake.broker.groups.config import GroupConfig
from kafkalake.broker.groups.consumer_classic import UPGRADES
from kafkalake.broker.groups.consumer_records import (
    ClassicMember,
    ConsumerRecord,
    Current,
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    Subscription,
    SubscriptionRecord,
    TargetEpochRecord,
    TargetRecord,
)
from kafkalake.broker.groups.consumer_targets import names_read
from kafkalake.broker.groups.consumer_topics import Topics, metadata_hash
from kafkalake.broker.groups.roster import Member
from kafkalake.broker.groups.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    read_version,
)


def upgraded(group: ClassicGroup, config: GroupConfig, topics: Topics) -> list[ConsumerRecord] | None:
    """Return the group's members and assignments, with its generation as epoch, or None if it may not change its protocol.

    All members must be consumers with readable subscriptions and assignments. User data of a client's own assignor would be lost,
    so a group with such data (sticky assignors, Kafka Streams) does not change, as in Apache Kafka.
    """
    if (
        config.group_consumer_migration_policy not in UPGRADES
        or group.roster.protocol_type != CONSUMER_PROTOCOL_TYPE
        or len(group.roster) > config.group_consumer_max_size
    ):
        return None
    try:
        return _records(group, topics)
    except JournalFormatError:
        return None


def _records(group: ClassicGroup, topics: Topics) -> list[ConsumerRecord]:
    group_id, epoch = group.group_id, group.generation_id
    subscriptions = {member.member_id: _subscription(member, group.protocol_name) for member in group.roster}
    records: list[ConsumerRecord] = [
        SubscriptionRecord(group_id, member_id, one) for member_id, one in subscriptions.items()
    ]
    digest = metadata_hash(names_read(subscriptions.values(), topics), topics)
    records.append(EpochRecord(group_id, GroupEpoch(epoch, digest)))
    for member in group.roster:
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise JournalFormatError("an assignor's user data")
        assigned = frozenset(
            (topics[name].topic_id, partition) for name, partition in assignment.partitions if name in topics
        )
        records.append(TargetRecord(group_id, member.member_id, assigned))
        records.append(CurrentRecord(group_id, member.member_id, Current(epoch, epoch, assigned=assigned)))
    records.append(TargetEpochRecord(group_id, epoch))
    return records


def _subscription(member: Member, protocol_name: str | None) -> Subscription:
    names = [protocol.name for protocol in member.protocols]
    chosen = member.protocols[names.index(protocol_name) if protocol_name in names else 0]
    said = read_subscription(chosen.metadata)
    read_version(member.protocols[0].metadata)  # in which a member that does not join again is answered
    if said.user_data:
        raise JournalFormatError("an assignor's user data")
    protocols = tuple((protocol.name, protocol.metadata) for protocol in member.protocols)
    return Subscription(
        member.group_instance_id,
        said.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(said.topics))),
        None,
        member.rebalance_timeout_ms,
        None,
        ClassicMember(member.session_timeout_ms, protocols),
    )
