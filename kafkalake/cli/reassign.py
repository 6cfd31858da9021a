"""`kafkalake brokers reassign`: moves partitions to other brokers, with the files and the words of `kafka-reassign-partitions`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalake.cli.completion import complete_broker_list, complete_topic
from kafkalake.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, Json, connect
from kafkalake.cli.output import Failure, UsageProblem, note, write_json, write_line
from kafkalake.topic_partition import TopicPartition, partition_name

if TYPE_CHECKING:
    from kafkalake.client.administration.blocking import Admin
    from kafkalake.client.administration.reassignments import Reassignment
    from kafkalake.client.cluster import BrokerNode
    from kafkalake.cluster.placement import Placement
    from kafkalake.errors import KafkaLakeError

    Assignment = Mapping[TopicPartition, Sequence[int]]

app = typer.Typer(no_args_is_help=True, help="Move partitions to other brokers.")

AssignmentFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="The JSON file of the reassignment, as `generate` prints it; -: stdin.", show_default=False
    ),
]
PreserveThrottles = Annotated[
    bool, typer.Option("--preserve-throttles", help="Leave the throttles of replication as they are.")
]


@app.command(
    epilog="Example:  [cyan]kafkalake brokers reassign generate clicks --brokers 1,2,3 --json > moves.json[/cyan]",
)
def generate(
    brokers: Annotated[
        str,
        typer.Option(
            "--brokers",
            metavar="ID,...",
            help="The brokers to which the partitions move.",
            show_default=False,
            autocompletion=complete_broker_list,
        ),
    ],
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Names of topics.", show_default=False, autocompletion=complete_topic),
    ] = None,
    topics_file: Annotated[
        Path | None,
        typer.Option(
            "--topics-file",
            metavar="FILE",
            help='The topics as a JSON file: {"topics": [{"topic": "clicks"}], "version": 1}.',
            show_default=False,
        ),
    ] = None,
    disable_rack_aware: Annotated[
        bool, typer.Option("--disable-rack-aware", help="Place replicas without regard to racks.")
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Propose a reassignment of topics to brokers; nothing is changed. With --json only the proposal is printed."""
    from kafkalake.cli.reassignment_file import assignment_text, read_topics

    if bool(topics) == (topics_file is not None):
        raise UsageProblem("name topics, or give --topics-file")
    names = list(dict.fromkeys(topics or ())) if topics_file is None else read_topics(topics_file)
    broker_ids = _broker_ids(brokers)
    with connect(bootstrap_server) as admin:
        current = {name: [each.replicas for each in admin.describe_topic(name).partitions] for name in names}
        nodes = _known(admin.describe_cluster().brokers, broker_ids)
    places = _places(nodes, with_racks=not disable_rack_aware)
    proposed = {
        (name, index): replicas
        for name, partitions in current.items()
        for index, replicas in enumerate(places.place(len(partitions), _factor(name, partitions, nodes)))
    }
    if json:
        write_line(assignment_text(proposed))
        return
    before = {(name, index): of for name, partitions in current.items() for index, of in enumerate(partitions)}
    write_line(f"Current partition replica assignment\n{assignment_text(before)}\n")
    write_line(f"Proposed partition reassignment configuration\n{assignment_text(proposed)}")


def _broker_ids(text: str) -> list[int]:
    words = [each.strip() for each in text.split(",")]
    if not all(each.isdecimal() for each in words):
        raise UsageProblem(f"--brokers takes ids of brokers, ID,ID,..., not '{text}'")
    ids = [int(each) for each in words]
    if len({*ids}) < len(ids):
        raise UsageProblem(f"--brokers names a broker twice: {text}")
    return ids


def _known(nodes: Iterable[BrokerNode], wanted: Iterable[int]) -> list[BrokerNode]:
    """Return the brokers with these ids. Raise `Failure` if one is not registered."""
    by_id = {node.broker_id: node for node in nodes}
    for each in wanted:
        if each not in by_id:
            raise Failure(f"no broker {each} is registered; there are {', '.join(map(str, sorted(by_id)))}")
    return [by_id[each] for each in wanted]


def _factor(topic: str, partitions: Sequence[Sequence[int]], nodes: Sequence[BrokerNode]) -> int:
    """Return the replication factor of a topic. Raise `Failure` if there are fewer brokers."""
    if len(partitions[0]) > len(nodes):
        raise Failure(f"topic '{topic}' has {len(partitions[0])} replicas, and --brokers names {len(nodes)}")
    return len(partitions[0])


def _places(nodes: Sequence[BrokerNode], *, with_racks: bool) -> Placement:
    """Return what places replicas on brokers as those of new topics. Raise `Failure` if only some of them have a rack."""
    from random import Random

    from kafkalake.cluster.image import BrokerRegistration, ClusterImage
    from kafkalake.cluster.placement import Placement
    from kafkalake.uuid_text import ZERO_UUID

    racks = {node.broker_id: node.rack if with_racks else None for node in nodes}
    if any(racks.values()) and not all(racks.values()):
        raise Failure("not all brokers have a rack", "--disable-rack-aware places replicas without regard to racks.")
    brokers = {
        node.broker_id: BrokerRegistration(
            node.broker_id, 0, ZERO_UUID, (), rack=racks[node.broker_id], is_fenced=node.is_fenced
        )
        for node in nodes
    }
    return Placement(ClusterImage("", brokers=brokers), Random())


@app.command(epilog="Example:  [cyan]kafkalake brokers reassign execute moves.json --throttle 50000000[/cyan]")
def execute(
    file: AssignmentFile,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle",
            metavar="BYTES",
            min=1,
            help="The limit on bytes a second that each broker copies; `verify` removes it.",
            show_default=False,
        ),
    ] = None,
    additional: Annotated[
        bool,
        typer.Option(
            "--additional", help="Also while other partitions move. This changes the throttle of a move, too."
        ),
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Begin to move partitions to the replicas that a file names; the first one of each is the preferred leader."""
    from kafkalake.cli.reassignment_file import assignment_text, read_assignment
    from kafkalake.client.administration.reassignments import plan_moves

    wanted = read_assignment(file)
    with connect(bootstrap_server) as admin:
        ongoing = admin.list_reassignments()
        if ongoing and not additional:
            raise Failure(
                f"{_count(ongoing)} already being reassigned",
                "--additional begins further moves, or changes their throttle.",
            )
        _known(admin.list_brokers(), sorted({each for replicas in wanted.values() for each in replicas}))
        before = _replicas(admin, wanted)
        if not json:
            write_line(f"Current partition replica assignment\n\n{assignment_text(before)}\n")
            write_line("Save this as a file to move the partitions back with it.")
        if throttle is not None:
            admin.set_throttle(plan_moves(ongoing, wanted, before), throttle)
            note(f"The limit is {throttle} B/s a broker. `verify` removes it once the partitions have moved.")
        errors = admin.alter_reassignments(wanted)
    if json:
        write_json(
            _outcome(wanted, errors) | {"previous": {partition_name(of): list(each) for of, each in before.items()}}
        )
    _raise_first(errors)
    if not json:
        write_line(f"Successfully started partition reassignment{_plural(wanted)} for {_names(wanted)}")


@app.command(epilog="Example:  [cyan]kafkalake brokers reassign verify moves.json[/cyan]")
def verify(
    file: AssignmentFile,
    preserve_throttles: PreserveThrottles = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Show how far a reassignment is, and remove the throttles once no partition moves any more."""
    from kafkalake.cli.reassignment_file import read_assignment

    wanted = read_assignment(file)
    with connect(bootstrap_server) as admin:
        ongoing = admin.list_reassignments()
        now = _replicas(admin, wanted)
        states = {each: _state(each in ongoing, now[each], wanted[each]) for each in sorted(wanted)}
        if not json:
            write_line("Status of partition reassignment:")
            for each, state in states.items():
                write_line(
                    _STATES[state].format(partition_name(each), *(",".join(map(str, of[each])) for of in (now, wanted)))
                )
        is_clearing = not ongoing and not preserve_throttles
        if is_clearing:
            _remove_throttles(admin, wanted, is_quiet=json)
    if json:
        partitions = [
            {
                "topic": of[0],
                "partition": of[1],
                "state": state,
                "replicas": list(now[of]),
                "target": list(wanted[of]),
            }
            for of, state in states.items()
        ]
        write_json({"partitions": partitions, "ongoing": bool(ongoing), "throttlesRemoved": is_clearing})


_STATES = {
    "completed": "Reassignment of partition {} is completed.",
    "in progress": "Reassignment of partition {} is still in progress.",
    "other": "There is no active reassignment of partition {}, but replica set is {} rather than {}.",
}


def _state(is_moving: bool, now: Sequence[int], wanted: Sequence[int]) -> str:
    if is_moving:
        return "in progress"
    return "completed" if tuple(now) == tuple(wanted) else "other"


@app.command()
def cancel(
    file: AssignmentFile,
    preserve_throttles: PreserveThrottles = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Give partitions that a file names, and that are moving, their replicas of before, and remove the throttles."""
    from kafkalake.cli.reassignment_file import read_assignment

    wanted = read_assignment(file)
    with connect(bootstrap_server) as admin:
        moving = [each for each in admin.list_reassignments() if each in wanted]
        errors = admin.alter_reassignments(dict.fromkeys(moving)) if moving else {}
        if json:
            write_json(_outcome(moving, errors))
        _raise_first(errors)
        if not json and moving:
            write_line(f"Successfully cancelled partition reassignment{_plural(moving)} for: {_names(moving)}")
        elif not json:
            write_line("None of the specified partition reassignments are active.")
        if not preserve_throttles:
            _remove_throttles(admin, wanted, is_quiet=json)


@app.command("list")
def list_moves(bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER, json: Json = False) -> None:
    """List the partitions that are moving."""

    with connect(bootstrap_server) as admin:
        ongoing = admin.list_reassignments()
    if json:
        write_json(
            [
                {
                    "topic": topic,
                    "partition": index,
                    "replicas": list(each.replicas),
                    "adding": list(each.adding),
                    "removing": list(each.removing),
                }
                for (topic, index), each in sorted(ongoing.items())
            ]
        )
        return
    if not ongoing:
        write_line("No partition reassignments found.")
        return
    write_line("Current partition reassignments:")
    for of, each in sorted(ongoing.items()):
        write_line(_move_line(of, each))


def _move_line(of: TopicPartition, move: Reassignment) -> str:
    """Return a move as `kafka-reassign-partitions --list` prints it."""
    parts = [f"{partition_name(of)}: replicas: {','.join(map(str, move.replicas))}."]
    for word, ids in (("adding", move.adding), ("removing", move.removing)):
        parts += [f"{word}: {','.join(map(str, ids))}."] if ids else []
    return " ".join(parts)


def _replicas(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas that partitions have now. Raise `UnknownTopicOrPartitionError`, `Failure` for an unknown number."""
    found = {}
    topics = {name: admin.describe_topic(name) for name in dict.fromkeys(name for name, _ in partitions)}
    for name, index in partitions:
        known = topics[name].partitions
        if index >= len(known):
            raise Failure(f"topic '{name}' has no partition {index}; it has {len(known)}, numbered from 0")
        found[name, index] = known[index].replicas
    return found


def _remove_throttles(admin: Admin, wanted: Assignment, *, is_quiet: bool) -> None:
    """Remove throttles from the brokers that live, which alone have any effect, and from topics."""

    broker_ids = [node.broker_id for node in admin.list_brokers()]
    topics = sorted({name for name, _ in wanted})
    if not is_quiet:
        ids = ",".join(map(str, broker_ids))
        write_line(f"Clearing broker-level throttles on broker{_plural(broker_ids)} {ids}")
        write_line(f"Clearing topic-level throttles on topic{_plural(topics)} {','.join(topics)}")
    admin.remove_throttles(broker_ids, topics)


def _raise_first(errors: Mapping[TopicPartition, KafkaLakeError]) -> None:
    """Raise the errors of partitions as one `Failure`."""
    if errors:
        raise Failure(
            "; ".join(f"{partition_name(of)}: {str(error).rstrip('.')}" for of, error in sorted(errors.items()))
        )


def _outcome(asked: Iterable[TopicPartition], errors: Mapping[TopicPartition, KafkaLakeError]) -> dict[str, object]:
    return {
        "partitions": [partition_name(of) for of in sorted(asked) if of not in errors],
        "errors": {partition_name(of): str(error) for of, error in sorted(errors.items())},
    }


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(partition_name(each) for each in sorted(partitions))


def _plural(items: Sequence[object] | Mapping[TopicPartition, object]) -> str:
    return "" if len(items) == 1 else "s"


def _count(items: Mapping[TopicPartition, object]) -> str:
    return "a partition is" if len(items) == 1 else f"{len(items)} partitions are"
