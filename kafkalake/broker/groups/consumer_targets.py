"""The targets of a consumer protocol group and the topics that its members read, both found in steps.

A group may have ten thousands of members, and many regular expressions that are matched against ten thousands of topics. So what
takes long yields in between.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from kafkalake.broker.coordination.patterns import matching
from kafkalake.broker.groups.assignors import ASSIGNORS, NOTHING, Assignment, Subscriber
from kafkalake.broker.groups.consumer_records import Subscription
from kafkalake.broker.groups.consumer_topics import Topics
from kafkalake.run_blocking import Steps, take_all

TopicsRead: TypeAlias = dict[tuple[tuple[str, ...], str | None], frozenset[str]]
"""The topics and the regular expression of a subscription -> the topic names that it reads. Most members have equal ones."""


def preferred_assignor(subscriptions: Mapping[str, Subscription], default: str) -> str:
    """Return the assignor that most members ask for, or the default if none does."""
    votes = Counter(one.assignor for one in subscriptions.values() if one.assignor is not None)
    return max(sorted(votes), key=votes.__getitem__) if votes else default


def find_topics(subscriptions: Iterable[Subscription], topics: Topics) -> Steps[TopicsRead]:
    """Return the topic names of each different subscription, including the current matches of its regular expression."""
    found: TopicsRead = {}
    for one in subscriptions:
        key = (one.topics, one.regex)
        if key not in found:
            names = frozenset(one.topics)
            found[key] = names | matching(one.regex, topics) if one.regex else names
            yield
    return found


def unite(found: TopicsRead) -> Steps[frozenset[str]]:
    """Return the topic names of all subscriptions."""
    names: set[str] = set()
    for each in found.values():
        names |= each
        yield
    return frozenset(names)


def names_read(subscriptions: Iterable[Subscription], topics: Topics) -> frozenset[str]:
    """Return the topic names of all subscriptions, in one step."""
    return take_all(unite(take_all(find_topics(subscriptions, topics))))


def compute_targets(
    targets: Mapping[str, Assignment],
    subscriptions: Mapping[str, Subscription],
    read: TopicsRead,
    topics: Topics,
    default_assignor: str,
) -> Steps[dict[str, Assignment]]:
    """Return the new target of each member, given the old `targets` and the topics that the subscriptions read."""
    members = {}
    partitions: dict[uuid.UUID, int] = {}
    ids_of: dict[tuple[tuple[str, ...], str | None], frozenset[uuid.UUID]] = {}
    for key, names in read.items():
        known = [topics[name] for name in names if name in topics]
        partitions.update((topic.topic_id, topic.partitions) for topic in known)
        ids_of[key] = frozenset(topic.topic_id for topic in known)
        yield
    for member_id, one in subscriptions.items():
        ids = ids_of[one.topics, one.regex]
        members[member_id] = Subscriber(ids, targets.get(member_id, NOTHING), one.group_instance_id)
        yield
    return (yield from ASSIGNORS[preferred_assignor(subscriptions, default_assignor)](members, partitions))
