"""`kafkalake brokers elect`: elects leaders of partitions, with the words of `kafka-leader-election`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalake.cli.completion import complete_topic
from kafkalake.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, Json, connect
from kafkalake.cli.output import Failure, UsageProblem, write_json, write_line
from kafkalake.topic_partition import TopicPartition, partition_name

if TYPE_CHECKING:
    from kafkalake.client.administration.blocking import Admin
    from kafkalake.errors import KafkaLakeError

EXAMPLES = """Examples

  [cyan]kafkalake brokers elect preferred --all[/cyan]
  [cyan]kafkalake brokers elect unclean clicks:0,3[/cyan]"""


class ElectionType(StrEnum):
    """The elections by the names that `kafka-leader-election` gives them."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


def elect(
    election_type: Annotated[
        ElectionType,
        typer.Argument(
            metavar="preferred|unclean",
            help="preferred: the first replica, if it is in sync. unclean: any replica, of a partition that has no leader; "
            "records may be lost.",
            show_default=False,
        ),
    ],
    partitions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:PARTITION,...]",
            help="Topics, or partitions of them.",
            show_default=False,
            autocompletion=complete_topic,
        ),
    ] = None,
    all_partitions: Annotated[bool, typer.Option("--all", help="All partitions that need it.")] = False,
    partitions_file: Annotated[
        Path | None,
        typer.Option(
            "--partitions-file",
            metavar="FILE",
            help='The partitions as a JSON file: {"partitions": [{"topic": "clicks", "partition": 1}]}.',
            show_default=False,
        ),
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Elect leaders of partitions: the preferred ones again, or any where no replica in sync is left."""
    from kafkalake.client.administration.reassignments import Election

    if [bool(partitions), all_partitions, partitions_file is not None].count(True) != 1:
        raise UsageProblem("name topics or partitions, or give --all or --partitions-file")
    with connect(bootstrap_server) as admin:
        asked = None if all_partitions else _asked(admin, partitions or [], partitions_file)
        results = admin.elect_leaders(Election(election_type.value), asked)
    _show(results, election_type.name, as_json=json)


def _asked(admin: Admin, named: list[str], file: Path | None) -> list[TopicPartition]:
    from kafkalake.cli.reassignment_file import read_partitions
    from kafkalake.cli.reset_offsets import named_partitions

    if file is not None:
        return read_partitions(file)
    return named_partitions(
        named, lambda name: [each.partition for each in admin.describe_topic(name).partitions], "the second argument"
    )


def _show(results: Mapping[TopicPartition, KafkaLakeError | None], election: str, *, as_json: bool) -> None:
    """Print the outcome. Raise `Failure` if there was no leader for a partition."""
    from kafkalake.errors import ElectionNotNeededError

    elected = [partition_name(of) for of, error in sorted(results.items()) if error is None]
    unchanged = [
        partition_name(of) for of, error in sorted(results.items()) if isinstance(error, ElectionNotNeededError)
    ]
    failed = {
        partition_name(of): str(error)
        for of, error in sorted(results.items())
        if error and partition_name(of) not in unchanged
    }
    if as_json:
        write_json({"elected": elected, "unchanged": unchanged, "errors": failed})
    else:
        if elected:
            write_line(f"Successfully completed leader election ({election}) for partitions {', '.join(elected)}")
        if unchanged:
            write_line(f"Valid replica already elected for partitions {', '.join(unchanged)}")
        if not results:
            write_line("No partition needs it.")
    if failed:
        raise Failure("; ".join(f"{name}: {error.rstrip('.')}" for name, error in failed.items()))
