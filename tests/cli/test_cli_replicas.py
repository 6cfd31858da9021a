"""`kafkalake topics describe --under-...`, `brokers reassign` and `brokers elect` on three brokers of each kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from command_line import Ended, run_here
from hypothesis import given
from hypothesis import strategies as st
from kafka_reference import Cluster, Clusters, topic_name
from waiting import wait_until

from kafkalake.cli.output import Failure
from kafkalake.cli.reassignment_file import assignment_text, read_assignment, read_partitions, read_topics
from kafkalake.cli.topic_description import PartitionState, is_in_state
from kafkalake.client.administration.reassignments import Move, Reassignment, plan_moves, throttled_replicas
from kafkalake.client.cluster import PartitionInfo

UNDER, UNDER_MIN, AT_MIN, GONE = PartitionState


@pytest.mark.parametrize(
    ("leader", "replicas", "isr", "states"),
    [
        (1, (1, 2, 3), (1, 2, 3), set()),
        (1, (1, 2, 3), (1, 2), {UNDER, AT_MIN}),
        (1, (1, 2, 3), (1,), {UNDER, UNDER_MIN}),
        (-1, (1, 2, 3), (), {UNDER, UNDER_MIN, GONE}),
        (-1, (1, 2, 3), (1, 2, 3), {UNDER_MIN, GONE}),
        (9, (9, 2, 3), (9, 2, 3), {GONE}),
    ],
)
def test_the_states_of_partitions(
    leader: int, replicas: tuple[int, ...], isr: tuple[int, ...], states: set[PartitionState]
) -> None:
    partition = PartitionInfo(0, leader, 5, replicas, isr)
    found = {each for each in PartitionState if is_in_state(partition, each, min_isr=2, brokers={1, 2, 3})}
    assert found == states


def test_replicas_that_are_being_added_are_not_missed() -> None:
    partition = PartitionInfo(0, 1, 5, (1, 2, 3), (1, 2))
    adding, removing = Reassignment((1, 2, 3), (3,), (2,)), Reassignment((1, 2, 3), (), (2,))
    assert not is_in_state(partition, UNDER, min_isr=1, brokers={1}, moving=adding)
    assert is_in_state(partition, UNDER, min_isr=1, brokers={1}, moving=removing)


def test_the_replicas_that_the_moves_of_a_topic_throttle() -> None:
    """As `kafka-reassign-partitions --throttle` sets them: a move under way keeps its sources."""
    ongoing = {("a", 1): Reassignment((3, 1, 2), (3,), (2,)), ("b", 0): Reassignment((1, 2), (2,), (1,))}
    moves = plan_moves(ongoing, {("a", 1): (2, 4), ("a", 0): (1, 2)}, {("a", 1): (3, 1, 2), ("a", 0): (1, 3)})
    assert moves == {("a", 0): Move((1, 3), (2,)), ("a", 1): Move((1, 2), (4,)), ("b", 0): Move((1,), (2,))}
    assert throttled_replicas(moves) == {
        "a": {
            "leader.replication.throttled.replicas": "0:1,0:3,1:1,1:2",
            "follower.replication.throttled.replicas": "0:2,1:4",
        },
        "b": {"leader.replication.throttled.replicas": "0:1", "follower.replication.throttled.replicas": "0:2"},
    }


@given(
    st.dictionaries(
        st.tuples(st.text(min_size=1, max_size=5), st.integers(0, 9)),
        st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True).map(tuple),
        min_size=1,
    )
)
def test_an_assignment_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, assignment: dict[tuple[str, int], tuple[int, ...]]
) -> None:
    path = tmp_path_factory.getbasetemp() / f"{uuid4()}.json"
    path.write_text(assignment_text(assignment))
    assert read_assignment(path) == assignment
    assert set(read_partitions(path)) == set(assignment)


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (read_assignment, "{", "is not JSON"),
        (read_assignment, "[]", "holds no JSON object"),
        (read_assignment, '{"version": 2, "partitions": []}', "is of version 2"),
        (read_assignment, '{"partitions": []}', 'has no list "partitions"'),
        (read_assignment, '{"partitions": [{"partition": 0, "replicas": [1]}]}', '"topic" is text, not null'),
        (
            read_assignment,
            '{"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}',
            '"partition" is a number',
        ),
        (
            read_assignment,
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}',
            "is a list of broker ids",
        ),
        (
            read_assignment,
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
            "names 1 twice among",
        ),
        (
            read_assignment,
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}, {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "names t-0 twice",
        ),
        (
            read_assignment,
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/x"]}]}',
            "are not moved between directories",
        ),
        (read_topics, '{"topics": [{"topic": "t"}, {"topic": "t"}]}', "names t twice"),
    ],
)
def test_what_is_said_of_a_file_that_is_none(
    tmp_path: Path, read: Callable[[Path], object], text: str, said: str
) -> None:
    path = tmp_path / "moves.json"
    path.write_text(text)
    with pytest.raises(Failure) as failed:
        read(path)
    assert said in str(failed.value)


@pytest.fixture(params=["kafkalake", "apache-kafka"])
def cluster(request: pytest.FixtureRequest, three_brokers: Clusters) -> Cluster:
    return three_brokers.kafkalake if request.param == "kafkalake" else three_brokers.apache_kafka


@pytest.fixture
def pairs(cluster: Cluster) -> str:
    """A topic of two partitions with the replicas 0, 1 and 1, 2."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = topic_name("pairs")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    wanted = NewTopic(name, 2, replica_assignment=[[0, 1], [1, 2]], config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[name].result(30)
    wait_until(lambda: [len(each["isr"]) for each in partitions_of(cluster, name)] == [2, 2], timeout_s=30)
    return name


def on(cluster: Cluster, *arguments: str, stdin: str = "") -> Ended:
    return run_here(
        *arguments, stdin=stdin, environment={"KAFKALAKE_BOOTSTRAP_SERVERS": cluster.brokers[1].bootstrap_servers}
    )


def partitions_of(cluster: Cluster, topic: str) -> list[dict[str, list[int]]]:
    ended = on(cluster, "topics", "describe", topic, "--json")
    found: list[dict[str, list[int]]] = json.loads(ended.stdout)[0]["partitions"] if ended.code == 0 else []
    return found


def settings_of(cluster: Cluster, topic: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(on(cluster, "topics", "describe", topic, "--json").stdout)[0]["configs"]
    return found


@pytest.mark.peer
def test_partitions_in_a_state_are_listed(cluster: Cluster, pairs: str) -> None:
    def listed(*options: str) -> str:
        ended = on(cluster, "topics", "describe", pairs, *options)
        assert (ended.code, ended.stderr) == (0, "")
        return ended.stdout

    assert listed("--under-replicated-partitions") == listed("--unavailable-partitions") == ""
    lines = listed("--at-min-isr-partitions", "--under-min-isr-partitions").splitlines()
    assert [line.partition("\tElr")[0] for line in lines] == [
        f"\tTopic: {pairs}\tPartition: 0\tLeader: 0\tReplicas: 0,1\tIsr: 0,1",
        f"\tTopic: {pairs}\tPartition: 1\tLeader: 1\tReplicas: 1,2\tIsr: 1,2",
    ]
    found = json.loads(listed("--at-min-isr-partitions", "--json"))
    assert [(each["topic"], each["partition"], each["isr"]) for each in found] == [
        (pairs, 0, [0, 1]),
        (pairs, 1, [1, 2]),
    ]
    both = on(cluster, "topics", "describe", pairs, "--all-configs", "--unavailable-partitions")
    assert (both.code, both.stderr.splitlines()[0]) == (
        2,
        "error: --all-configs and --unavailable-partitions exclude each other",
    )


@pytest.mark.peer
def test_a_topic_moves_to_other_brokers_under_a_throttle(cluster: Cluster, pairs: str) -> None:
    proposed = on(cluster, "brokers", "reassign", "generate", pairs, "--brokers", "0,2", "--json")
    moves = json.loads(proposed.stdout)["partitions"]
    assert [sorted(each["replicas"]) for each in moves] == [[0, 2], [0, 2]]
    texts = on(cluster, "brokers", "reassign", "generate", pairs, "--brokers", "0,2").stdout.splitlines()
    assert [json.loads(texts[1])["partitions"][index]["replicas"] for index in (0, 1)] == [[0, 1], [1, 2]]

    begun = on(cluster, "brokers", "reassign", "execute", "-", "--throttle", "1000000", stdin=proposed.stdout)
    assert (begun.code, begun.stdout.splitlines()[-1]) == (
        0,
        f"Successfully started partition reassignments for {pairs}-0,{pairs}-1",
    )

    assert settings_of(cluster, pairs)["leader.replication.throttled.replicas"] == "0:0,0:1,1:1,1:2"

    def verified() -> dict[str, object]:
        ended = on(cluster, "brokers", "reassign", "verify", "-", "--json", stdin=proposed.stdout)
        found: dict[str, object] = json.loads(ended.stdout)
        return found

    wait_until(lambda: verified()["throttlesRemoved"], timeout_s=60)
    wait_until(lambda: "leader.replication.throttled.replicas" not in settings_of(cluster, pairs), timeout_s=20)
    again = on(cluster, "brokers", "reassign", "verify", "-", stdin=proposed.stdout).stdout.splitlines()
    assert again[:3] == ["Status of partition reassignment:"] + [
        f"Reassignment of partition {pairs}-{index} is completed." for index in (0, 1)
    ]
    assert again[3:] == [
        "Clearing broker-level throttles on brokers 0,1,2",
        f"Clearing topic-level throttles on topic {pairs}",
    ]
    assert on(cluster, "brokers", "reassign", "cancel", "-", "--preserve-throttles", stdin=proposed.stdout).stdout == (
        "None of the specified partition reassignments are active.\n"
    )
    assert on(cluster, "brokers", "reassign", "list").stdout == "No partition reassignments found.\n"
    back = json.dumps({"version": 1, "partitions": [{"topic": pairs, "partition": 0, "replicas": [0, 1]}]})
    other = on(cluster, "brokers", "reassign", "verify", "-", "--preserve-throttles", stdin=back).stdout.splitlines()[1]
    now = ",".join(map(str, moves[0]["replicas"]))
    assert other == f"There is no active reassignment of partition {pairs}-0, but replica set is {now} rather than 0,1."


@pytest.mark.peer
def test_leaders_are_elected(cluster: Cluster, pairs: str) -> None:
    needless = on(cluster, "brokers", "elect", "preferred", f"{pairs}:0", f"{pairs}:1")
    assert (needless.code, needless.stdout) == (
        0,
        f"Valid replica already elected for partitions {pairs}-0, {pairs}-1\n",
    )
    swapped = json.dumps({"version": 1, "partitions": [{"topic": pairs, "partition": 0, "replicas": [1, 0]}]})
    assert on(cluster, "brokers", "reassign", "execute", "-", stdin=swapped).code == 0
    wait_until(lambda: partitions_of(cluster, pairs)[0]["replicas"] == [1, 0], timeout_s=30)
    elected = on(cluster, "brokers", "elect", "preferred", pairs, "--json")
    assert json.loads(elected.stdout) == {"elected": [f"{pairs}-0"], "unchanged": [f"{pairs}-1"], "errors": {}}
    wait_until(lambda: partitions_of(cluster, pairs)[0]["leader"] == 1, timeout_s=30)
    unclean = on(cluster, "brokers", "elect", "unclean", f"{pairs}:1")
    assert (unclean.code, unclean.stdout) == (0, f"Valid replica already elected for partitions {pairs}-1\n")


@pytest.mark.peer
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("reassign", "execut", "x.json"), 2, "no such command 'execut'; did you mean 'execute'?"),
        (("reassign", "execute", "nosuch.json"), 1, "nosuch.json"),
        (("reassign", "generate", "--brokers", "0"), 2, "name topics, or give --topics-file"),
        (("reassign", "generate", "nosuch", "--brokers", "0,0"), 2, "--brokers names a broker twice: 0,0"),
        (
            ("reassign", "generate", "nosuch", "--brokers", "0;1"),
            2,
            "--brokers takes ids of brokers, ID,ID,..., not '0;1'",
        ),
        (("reassign", "generate", "nosuch", "--brokers", "0"), 1, "topic 'nosuch' does not exist"),
        (("elect", "prefered", "--all"), 2, "'prefered' is not one of"),
        (("elect", "preferred"), 2, "name topics or partitions, or give --all or --partitions-file"),
        (("elect", "preferred", "t", "--all"), 2, "name topics or partitions, or give --all or --partitions-file"),
        (("elect", "preferred", "t:x"), 2, "takes TOPIC or TOPIC:0,1,2, not 't:x'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_is_one_sentence(
    three_brokers: Clusters, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = on(three_brokers.kafkalake, "brokers", *arguments)
    assert (ended.code, ended.stdout) == (code, "")
    assert said.lower() in ended.stderr.lower()


@pytest.mark.peer
def test_moves_that_cannot_be_are_refused(three_brokers: Clusters, request: pytest.FixtureRequest) -> None:
    cluster = three_brokers.kafkalake

    def execute(**fields: object) -> str:
        text = json.dumps(
            {"version": 1, "partitions": [{"topic": "nosuch", "partition": 0, "replicas": [0], **fields}]}
        )
        ended = on(cluster, "brokers", "reassign", "execute", "-", stdin=text)
        assert (ended.code, ended.stdout) == (1, "")
        return ended.stderr

    assert "no broker 7 is registered; there are 0, 1, 2" in execute(replicas=[7])
    assert "topic 'nosuch' does not exist" in execute()
