"""`kafkalake transactions`: list, describe, describe-producers, abort; columns as in `kafka-transactions`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalake.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, Json, TopicName, connect
from kafkalake.cli.output import Failure, UsageProblem, note, show_columns, write_json, write_line

if TYPE_CHECKING:
    from kafkalake.client.administration.blocking import Admin
    from kafkalake.client.administration.transactions import ActiveProducer

app = typer.Typer(no_args_is_help=True, help="Transactions: which are open, since when, and an end to those that hang.")

TransactionalId = Annotated[
    str, typer.Argument(metavar="TRANSACTIONAL-ID", help="Transactional id of a producer.", show_default=False)
]

LIST_COLUMNS = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
LIST_KEYS = ("transactionalId", "coordinator", "producerId", "transactionState")
DESCRIBE_COLUMNS = (
    "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
)  # fmt: skip
PRODUCER_COLUMNS = (
    "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
    "CurrentTransactionStartOffset",
)  # fmt: skip


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only ids in this state: Ongoing, CompleteCommit, ..."),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="ID", help="Only ids with this producer id.")
    ] = None,
    duration_filter: Annotated[
        int,
        typer.Option(
            "--duration-filter", metavar="MS", help="Only transactions open for longer than this.", show_default=False
        ),
    ] = -1,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """List transactional ids and their states."""
    with connect(bootstrap_server) as admin:
        found = admin.list_transactions(states=state or (), producer_ids=producer_id or (), duration_ms=duration_filter)
    rows = [(each.transactional_id, each.coordinator_id, each.producer_id, each.state) for each in found]
    if json:
        write_json([dict(zip(LIST_KEYS, row, strict=True)) for row in rows])
    else:
        show_columns(LIST_COLUMNS, rows, right=("Coordinator", "ProducerId"))


@app.command(epilog="Example:  [cyan]kafkalake transactions describe copier-1 --json | jq .topicPartitions[/cyan]")
def describe(
    transactional_id: TransactionalId,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Show who uses a transactional id, since when its transaction is open, and in which partitions."""
    with connect(bootstrap_server) as admin:
        found = admin.describe_transaction(transactional_id)
    started = found.started_at_ms
    duration_ms = None if started is None else max(int(time.time() * 1000) - started, 0)
    if json:
        write_json(
            {
                "coordinatorId": found.coordinator_id,
                "transactionalId": found.transactional_id,
                "producerId": found.producer_id,
                "producerEpoch": found.producer_epoch,
                "transactionState": found.state,
                "transactionTimeoutMs": found.timeout_ms,
                "currentTransactionStartTimeMs": started,
                "transactionDurationMs": duration_ms,
                "topicPartitions": [{"topic": topic, "partition": index} for topic, index in found.partitions],
            }
        )
        return
    row = (
        found.coordinator_id,
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        started,
        duration_ms,
        ",".join(f"{topic}-{index}" for topic, index in found.partitions),
    )
    show_columns(DESCRIBE_COLUMNS, [["None" if value is None else value for value in row]])


@app.command("describe-producers")
def describe_producers(
    topic: TopicName,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="Number of the partition.")],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Show the producers that a partition knows, and where their open transactions begin."""
    with connect(bootstrap_server) as admin:
        found = admin.describe_producers(topic, partition)
    rows: list[tuple[object, ...]] = [
        (
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp_ms,
            each.transaction_start_offset,
        )
        for each in found
    ]
    if json:
        keys = [name[0].lower() + name[1:] for name in PRODUCER_COLUMNS]
        write_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        rows = [(*row[:-1], "None" if row[-1] is None else row[-1]) for row in rows]
        show_columns(PRODUCER_COLUMNS, rows, right=PRODUCER_COLUMNS)


@app.command(
    epilog="Examples:\n\n"
    "  [cyan]kafkalake transactions abort copier-1[/cyan]\n"
    "  [cyan]kafkalake transactions abort --topic clicks --partition 0 --start-offset 1234[/cyan]"
)
def abort(
    transactional_id: Annotated[
        str | None,
        typer.Argument(
            metavar="TRANSACTIONAL-ID",
            help="Abort the open transaction of this id, in all its partitions, and refuse its producer.",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Abort in one partition.", show_default=False)
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Number of the partition.", show_default=False)
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", min=0, help="Where the transaction to abort begins.", show_default=False),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", help="Whose transaction to abort, instead of --start-offset.")
    ] = None,
    producer_epoch: Annotated[int | None, typer.Option("--producer-epoch", help="Its producer epoch.")] = None,
    coordinator_epoch: Annotated[
        int | None, typer.Option("--coordinator-epoch", help="Its coordinator's epoch.")
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Abort a transaction: by its transactional id, or, where its coordinator has forgotten it, in one partition.

    The second way leaves the transaction open in its other partitions: each of them needs its own abort.
    """

    by_producer = (producer_id, producer_epoch, coordinator_epoch)
    given = [transactional_id is not None, start_offset is not None, any(each is not None for each in by_producer)]
    if sum(given) != 1:
        raise UsageProblem(
            "give a TRANSACTIONAL-ID, or --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch"
        )
    if transactional_id is not None:
        if topic is not None or partition is not None:
            raise UsageProblem("a transactional id is aborted in all its partitions: leave out --topic and --partition")
        with connect(bootstrap_server) as admin:
            said = _abort_everywhere(admin, transactional_id)
    else:
        if topic is None or partition is None:
            raise UsageProblem("say in which partition: --topic and --partition")
        with connect(bootstrap_server) as admin:
            if start_offset is not None:
                found = _producer_at(admin, topic, partition, start_offset)
                identity = (found.producer_id, found.producer_epoch, max(found.coordinator_epoch, 0))
            elif producer_id is None or producer_epoch is None:
                raise UsageProblem("--producer-id and --producer-epoch go together")
            else:
                identity = (producer_id, producer_epoch, max(coordinator_epoch or 0, 0))
            admin.write_abort_marker(
                topic,
                partition,
                producer_id=identity[0],
                producer_epoch=identity[1],
                coordinator_epoch=identity[2],
            )
        said = {"topic": topic, "partition": partition, "producerId": identity[0], "producerEpoch": identity[1]}
    if json:
        write_json({"aborted": said})
    else:
        write_line("Aborted " + ", ".join(f"{name} {value}" for name, value in said.items()) + ".")


def _abort_everywhere(admin: Admin, transactional_id: str) -> dict[str, object]:
    """Abort the transaction of a transactional id and return its identity. Raise `Failure` if none is open."""
    found = admin.describe_transaction(transactional_id)
    if not found.is_open:
        raise Failure(f"transactional id '{transactional_id}' has no open transaction: its state is {found.state}")
    if found.state != "Ongoing":
        note(
            f"The end of this transaction is decided already ({found.state}); this waits for it, and fences the producer."
        )
    admin.fence_producer(transactional_id, timeout_ms=found.timeout_ms)
    return {"transactionalId": transactional_id, "producerId": found.producer_id, "producerEpoch": found.producer_epoch}


def _producer_at(admin: Admin, topic: str, partition: int, start_offset: int) -> ActiveProducer:
    """Return the producer whose open transaction begins at this offset. Raise `Failure` if there is none."""
    producers = admin.describe_producers(topic, partition)
    for each in producers:
        if each.transaction_start_offset == start_offset:
            return each
    begins = sorted(each.transaction_start_offset for each in producers if each.transaction_start_offset is not None)
    there = f"open ones begin at {', '.join(map(str, begins))}" if begins else "none is open there"
    raise Failure(f"no open transaction begins at offset {start_offset} of partition {topic}-{partition}; {there}")
