"""`kafkalake topics describe`: topics as `kafka-topics --describe` prints them, all or the partitions in some state."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalake.cli.completion import complete_topic
from kafkalake.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, Json, connect, with_options
from kafkalake.cli.output import UsageProblem, on_terminal, write_json, write_line
from kafkalake.cli.topic_description import (
    PartitionState,
    description,
    description_lines,
    draw,
    draw_partitions,
    is_in_state,
    partition_description,
    partition_line,
)

if TYPE_CHECKING:
    from kafkalake.cli.topic_description import Eligible, Moving
    from kafkalake.client.administration.blocking import Admin
    from kafkalake.client.administration.configs import ConfigEntry
    from kafkalake.client.administration.reassignments import Reassignment
    from kafkalake.client.cluster import PartitionInfo, TopicInfo
    from kafkalake.errors import UnknownTopicOrPartitionError

EXAMPLES = """Examples

  [cyan]kafkalake topics describe clicks --json | jq .[0].configs[/cyan]
  [cyan]kafkalake topics describe --under-replicated-partitions[/cyan]"""


@dataclass(frozen=True, kw_only=True)
class DescribeOptions:
    """The command line of `topics describe`."""

    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="Names of topics; none: all.",
            show_default=False,
            autocompletion=complete_topic,
        ),
    ] = None
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Show settings that have their default value too.")
    ] = False
    under_replicated: Annotated[
        bool,
        typer.Option("--under-replicated-partitions", help="Only partitions with replicas that are not in the ISR."),
    ] = False
    under_min_isr: Annotated[
        bool,
        typer.Option("--under-min-isr-partitions", help="Only those with fewer replicas in sync than acks=all needs."),
    ] = False
    at_min_isr: Annotated[
        bool,
        typer.Option(
            "--at-min-isr-partitions", help="Only those with just as many replicas in sync as acks=all needs."
        ),
    ] = False
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only those without a leader that lives.")
    ] = False
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER
    json: Json = False

    @property
    def states(self) -> list[PartitionState]:
        """The states of which partitions are shown, none: all."""
        asked = {
            PartitionState.UNDER_REPLICATED: self.under_replicated,
            PartitionState.UNDER_MIN_ISR: self.under_min_isr,
            PartitionState.AT_MIN_ISR: self.at_min_isr,
            PartitionState.UNAVAILABLE: self.unavailable,
        }
        return [state for state, is_asked in asked.items() if is_asked]


@with_options(DescribeOptions)
def describe(options: DescribeOptions) -> None:
    """Describe topics: partitions, leaders, replicas, settings; or only the partitions in some state."""

    from kafkalake.client.administration.configs import TOPIC_RESOURCE

    states = options.states
    if states and options.all_configs:
        raise UsageProblem(f"--all-configs and {states[0].value} exclude each other")
    with connect(options.bootstrap_server) as admin:
        found, unknown = _found(admin, options.topics)
        names = [topic.name for topic in found]
        configs = admin.describe_configs(TOPIC_RESOURCE, names) if names else {}
        eligible = admin.eligible_leaders(names) if names else {}
        moving = _reassignments(admin)
        live = {node.broker_id for node in admin.list_brokers()}
    if states:
        partitions = [
            (topic.name, each)
            for topic in found
            for each in topic.partitions
            if _is_in_any(each, states, _min_isr(configs[topic.name]), live, moving.get((topic.name, each.partition)))
        ]
        documents = [
            {"topic": topic, **partition_description(topic, each, eligible, moving)} for topic, each in partitions
        ]
        if not options.json:
            _show_partitions(partitions, eligible, moving)
    else:
        shown = {
            name: [entry for entry in entries if options.all_configs or not entry.is_default]
            for name, entries in configs.items()
        }
        documents = [description(topic, shown.get(topic.name, []), eligible, moving) for topic in found]
        if not options.json:
            _show_topics(found, shown, eligible, moving)
    if options.json:
        write_json([*documents, *({"topic": name, "error": str(error)} for name, error in unknown.items())])
    if unknown:
        raise next(iter(unknown.values()))


def _found(
    admin: Admin, names: Sequence[str] | None
) -> tuple[list[TopicInfo], dict[str, UnknownTopicOrPartitionError]]:
    """Return the topics of these names, all if there are none, and the errors of those that do not exist."""
    from kafkalake.errors import UnknownTopicOrPartitionError

    if not names:
        return admin.list_topics(), {}
    found, unknown = [], dict[str, UnknownTopicOrPartitionError]()
    for name in names:
        try:
            found.append(admin.describe_topic(name))
        except UnknownTopicOrPartitionError as error:
            unknown[name] = error
    return found, unknown


def _show_topics(
    topics: Iterable[TopicInfo], shown: Mapping[str, Sequence[ConfigEntry]], eligible: Eligible, moving: Moving
) -> None:
    for topic in topics:
        entries = shown.get(topic.name, [])
        if on_terminal():
            draw(topic, entries, eligible)
            continue
        for line in description_lines(topic, entries, eligible, moving):
            write_line(line)


def _show_partitions(partitions: Sequence[tuple[str, PartitionInfo]], eligible: Eligible, moving: Moving) -> None:
    if on_terminal():
        draw_partitions(partitions, eligible)
    else:
        for topic, each in partitions:
            write_line(partition_line(topic, each, eligible, moving))


def _is_in_any(
    partition: PartitionInfo,
    states: Sequence[PartitionState],
    min_isr: int,
    live: Container[int],
    move: Reassignment | None,
) -> bool:
    return any(is_in_state(partition, each, min_isr=min_isr, brokers=live, moving=move) for each in states)


def _min_isr(entries: Iterable[ConfigEntry]) -> int:
    return next((int(each.value or 1) for each in entries if each.name == "min.insync.replicas"), 1)


def _reassignments(admin: Admin) -> Moving:
    """Return the moves that are under way, none of a cluster that does not tell them."""
    from kafkalake.errors import ClusterAuthorizationError, UnsupportedVersionError

    try:
        return admin.list_reassignments()
    except (ClusterAuthorizationError, UnsupportedVersionError):
        return {}
