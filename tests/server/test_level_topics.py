"""`delay.levels` of a topic makes topics beside it, which follow its partitions, its settings and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from unittest.mock import AsyncMock, patch

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from node_in_thread import NodeInThread
from waiting import wait_until

from kafkalake.errors import KafkaStorageError

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeInThread]:
    with NodeInThread(tmp_path_factory.mktemp("levels") / "lake", {"max.partitions": "60"}) as node:
        yield node


@pytest.fixture(scope="module")
def admin(node: NodeInThread) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.servers})


def create(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(TIMEOUT_S)


def alter(admin: AdminClient, name: str, setting: str, value: str) -> None:
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def delete(admin: AdminClient, name: str) -> None:
    admin.delete_topics([name])[name].result(TIMEOUT_S)


def topics(admin: AdminClient, begin: str) -> dict[str, int]:
    """The partitions of each topic with such a name."""
    found = admin.list_topics(timeout=TIMEOUT_S).topics
    return {name.removeprefix(begin): len(topic.partitions) for name, topic in found.items() if name.startswith(begin)}


@pytest.mark.exhaustive
def test_topics_of_delays_follow_their_target(admin: AdminClient) -> None:
    create(admin, "orders", 2, delay_levels="5s,1m")
    assert topics(admin, "orders") == {"": 2, "-delay-5s": 2, "-delay-1m": 2}
    admin.create_partitions([NewPartitions("orders", 3)])["orders"].result(TIMEOUT_S)
    assert topics(admin, "orders") == {"": 3, "-delay-5s": 3, "-delay-1m": 3}
    alter(admin, "orders", "delay.levels", "1m, 500ms")
    assert topics(admin, "orders") == {"": 3, "-delay-1m": 3, "-delay-500ms": 3}
    alter(admin, "orders", "retention.ms", "1000")
    delete(admin, "orders")
    assert topics(admin, "orders") == {}
    create(admin, "orders")
    assert topics(admin, "orders") == {"": 1}, "a topic that comes again has those of its own settings"
    delete(admin, "orders")


def refusal(call: object) -> tuple[str, str]:
    with pytest.raises(KafkaException) as refused:
        call()  # type: ignore[operator]
    return refused.value.args[0].name(), refused.value.args[0].str()


@pytest.mark.exhaustive
def test_names_that_are_taken_are_refused_and_nothing_is_made(admin: AdminClient) -> None:
    create(admin, "sales-delay-5s")
    name, text = refusal(lambda: create(admin, "sales", delay_levels="1s,5s"))
    assert name == "INVALID_CONFIG" and "'sales-delay-5s' exists already" in text
    assert topics(admin, "sales") == {"-delay-5s": 1}
    create(admin, "sales", delay_levels="1s")
    name, text = refusal(lambda: alter(admin, "sales", "delay.levels", "1s,5s"))
    assert name == "INVALID_CONFIG" and "'sales-delay-5s' exists already" in text
    name, _ = refusal(lambda: create(admin, "s" * 245, delay_levels="1s"))
    assert name == "INVALID_CONFIG", "the name would be too long"
    name, _ = refusal(lambda: create(admin, "many", 30, delay_levels="1s,2s"))
    assert name == "POLICY_VIOLATION", "max.partitions"
    delete(admin, "sales")
    assert topics(admin, "sales") == {"-delay-5s": 1}, "a topic of that name that is none of a delay stays"
    delete(admin, "sales-delay-5s")


@pytest.mark.exhaustive
@pytest.mark.parametrize("levels", ["5", "5x", "-5s", "0s", "1m,60s", "5s,,1m", "41d"])
def test_levels_that_are_none_are_refused(admin: AdminClient, levels: str) -> None:
    assert refusal(lambda: create(admin, "wrong", delay_levels=levels))[0] == "INVALID_CONFIG"


@pytest.mark.exhaustive
def test_a_topic_of_a_delay_is_changed_with_its_target_alone(admin: AdminClient) -> None:
    create(admin, "jobs", delay_levels="5s")
    grow = NewPartitions("jobs-delay-5s", 2)
    for change in (
        lambda: delete(admin, "jobs-delay-5s"),
        lambda: admin.create_partitions([grow])["jobs-delay-5s"].result(TIMEOUT_S),
    ):
        assert refusal(change)[0] == "TOPIC_EXCEPTION"
    for change in (
        lambda: alter(admin, "jobs-delay-5s", "delay.level", "1s"),
        lambda: alter(admin, "jobs-delay-5s", "delay.levels", "1s"),
        lambda: create(admin, "mine", delay_level="5s", delay_target="jobs"),
    ):
        assert refusal(change)[0] == "INVALID_CONFIG"
    alter(admin, "jobs-delay-5s", "retention.ms", "5000")
    delete(admin, "jobs")
    assert topics(admin, "jobs") == {}


def test_a_topic_is_deleted_in_one_request_with_those_of_its_delays(node: NodeInThread, admin: AdminClient) -> None:
    """As by a client that deletes all topics that it is told of."""
    names = ["all-delay-5s", "all", "all-delay-1m"]
    create(admin, "all", 2, delay_levels="5s,1m,1h")
    for deleting in admin.delete_topics(names).values():
        deleting.result(TIMEOUT_S)
    assert topics(admin, "all") == {}


@pytest.mark.exhaustive
def test_what_a_killed_controller_has_left_is_made_good(node: NodeInThread, admin: AdminClient) -> None:
    create(admin, "left", 2, delay_levels="5s,1m")
    delete_topics = node.broker.topic_admin._delete

    async def lose(name: str) -> None:
        broker = node.broker
        await delete_topics([broker.topics.topic(name)])
        broker.topic_admin.settler.settle_soon()
        await broker.topic_admin.wait()

    asyncio.run_coroutine_threadsafe(lose("left-delay-5s"), node.loop).result(TIMEOUT_S)
    assert topics(admin, "left") == {"": 2, "-delay-5s": 2, "-delay-1m": 2}
    asyncio.run_coroutine_threadsafe(lose("left"), node.loop).result(TIMEOUT_S)
    assert topics(admin, "left") == {}


@pytest.mark.exhaustive
def test_a_topic_whose_deletion_has_yet_to_be_finished_is_not_told_to_exist(
    node: NodeInThread, admin: AdminClient
) -> None:
    create(admin, "half")
    controller, failure = node.broker.topic_admin._controller, KafkaStorageError("fails on purpose")
    with patch.object(controller, "_commit", AsyncMock(side_effect=failure)):
        assert refusal(lambda: delete(admin, "half"))[0] == "KAFKA_STORAGE_ERROR"
        for _ in range(2):
            assert refusal(lambda: create(admin, "half"))[0] == "KAFKA_STORAGE_ERROR"
    create(admin, "half", 2)
    assert topics(admin, "half") == {"": 2}
    assert refusal(lambda: create(admin, "half"))[0] == "TOPIC_ALREADY_EXISTS"


@pytest.mark.exhaustive
def test_topics_that_cannot_be_brought_together_are_tried_again_by_one_timer(node: NodeInThread) -> None:
    topic_admin, actions = node.broker.topic_admin, []
    failures = [KafkaStorageError("fails on purpose"), MemoryError()] * 5

    async def is_settled() -> bool:
        await topic_admin.wait()
        return not topic_admin.settler.is_to_come

    wait_until(lambda: asyncio.run_coroutine_threadsafe(is_settled(), node.loop).result(TIMEOUT_S), timeout_s=TIMEOUT_S)

    async def settle(times: int) -> None:
        for _ in range(times):
            topic_admin.settler.settle_soon()
        await topic_admin.wait()

    async def act() -> None:
        actions[-1]()
        await topic_admin.wait()

    def run(work: Coroutine[object, object, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, node.loop).result(TIMEOUT_S)

    with patch.object(topic_admin.settler, "_later", lambda delay_ms, action: actions.append(action)):
        with patch.object(topic_admin._controller, "change", AsyncMock(side_effect=failures)):
            run(settle(3))
            assert len(actions) == 1
            run(act())
            run(settle(2))
            assert len(actions) == 3, "new failures do not wait as long as the ones before"
            run(settle(2))
        run(act())
        assert not topic_admin.settler.is_to_come
        actions[-2]()
    assert len(actions) == 3
