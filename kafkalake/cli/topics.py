"""`kafkalake topics`: create, list, describe, alter, delete; names and columns as in `kafka-topics`, `kafka-get-offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalake.cli.completion import complete_topic, complete_topic_setting
from kafkalake.cli.describe_topics import EXAMPLES, describe
from kafkalake.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    Json,
    TopicName,
    connect,
    parse_pairs,
    settings_of_topic,
)
from kafkalake.cli.output import Failure, UsageProblem, write_json, write_line
from kafkalake.cli.topic_description import kafka_uuid, replication_factor
from kafkalake.close_names import unknown_setting_hint

if TYPE_CHECKING:
    from kafkalake.client.administration.blocking import Admin
    from kafkalake.errors import KafkaError, OffsetOutOfRangeError
    from kafkalake.topic_partition import TopicPartition

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter and delete topics.")

Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        help="A topic setting by Kafka's name, such as retention.ms=86400000. May be given several times.",
        autocompletion=complete_topic_setting,
        show_default=False,
    ),
]


@app.command(
    epilog="Example:  [cyan]kafkalake topics create clicks --partitions 4 --config retention.ms=604800000[/cyan]",
)
def create(
    topic: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="Number of partitions (the broker's num.partitions).", show_default=False
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, help="Copies of each partition (the broker's default).", show_default=False),
    ] = None,
    config: Config = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A topic that exists is no error.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Create a topic."""
    from kafkalake.client.administration.topics import CreatedTopic
    from kafkalake.errors import KafkaError, TopicAlreadyExistsError

    settings = parse_pairs(config or (), "--config")
    with connect(bootstrap_server) as admin:
        try:
            created = admin.create_topic(
                topic,
                partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                config=settings,
            )
        except TopicAlreadyExistsError:
            if not if_not_exists:
                raise
            info = admin.describe_topic(topic)
            created = CreatedTopic(topic, info.topic_id, len(info.partitions), len(info.partitions[0].replicas))
            text = f"Topic {topic} exists already."
        except KafkaError as error:
            raise _with_setting_hint(error, settings) from None
        else:
            text = f"Created topic {topic}."
    if json:
        write_json(
            {
                "topic": topic,
                "topicId": kafka_uuid(created.topic_id),
                "partitionCount": created.partitions,
                "replicationFactor": created.replication_factor,
                "configs": settings,
            }
        )
    else:
        write_line(text)


@app.command("list")
def list_topics(
    exclude_internal: Annotated[
        bool, typer.Option("--exclude-internal", help="Leave out topics such as __consumer_offsets.")
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """List the names of all topics, one a line."""
    with connect(bootstrap_server) as admin:
        topics = [topic for topic in admin.list_topics() if not (exclude_internal and topic.is_internal)]
    if json:
        write_json(
            [
                {
                    "topic": topic.name,
                    "topicId": kafka_uuid(topic.topic_id),
                    "partitionCount": len(topic.partitions),
                    "replicationFactor": replication_factor(topic),
                    "internal": topic.is_internal,
                }
                for topic in topics
            ]
        )
        return
    for topic in topics:
        write_line(topic.name)


app.command("describe", epilog=EXAMPLES)(describe)


@app.command(
    epilog="Example:  [cyan]kafkalake topics alter clicks --partitions 8 --config retention.ms=3600000[/cyan]",
)
def alter(
    topic: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="New number of partitions; it can only grow.", show_default=False
        ),
    ] = None,
    config: Config = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Return a setting to its default.", show_default=False),
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Add partitions to a topic, change its settings."""
    from kafkalake.client.administration.configs import TOPIC_RESOURCE
    from kafkalake.errors import KafkaError

    settings = parse_pairs(config or (), "--config")
    deleted = delete_config or []
    if partitions is None and not settings and not deleted:
        raise UsageProblem("nothing to alter: give --partitions, --config or --delete-config")
    with connect(bootstrap_server) as admin:
        count = len(admin.describe_topic(topic).partitions)
        if deleted:
            _require_settings(admin, topic, deleted)
        try:
            if settings or deleted:
                admin.alter_configs(TOPIC_RESOURCE, topic, set_values=settings, delete=deleted)
        except KafkaError as error:
            raise _with_setting_hint(error, [*settings, *deleted]) from None
        if partitions is not None:
            admin.create_partitions(topic, partitions)
    if json:
        write_json({"topic": topic, "partitionCount": partitions or count, "set": settings, "deleted": deleted})
        return
    if settings or deleted:
        write_line(f"Completed updating config for topic {topic}.")
    if partitions is not None:
        write_line(f"Topic {topic} has {partitions} partitions now.")


@app.command()
def delete(
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC",
            help="Names of topics.",
            show_default=False,
            autocompletion=complete_topic,
        ),
    ],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A topic that does not exist is no error.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Delete topics with all their records."""
    from kafkalake.errors import KafkaLakeError, UnknownTopicOrPartitionError

    existing, missing = [], dict[str, KafkaLakeError]()
    with connect(bootstrap_server) as admin:
        for topic in topics:
            try:
                existing.append(admin.describe_topic(topic).name)
            except UnknownTopicOrPartitionError as error:
                if not if_exists:
                    missing[topic] = error
        wanted = [] if missing else existing  # with an unknown name nothing is deleted
        errors = missing or (admin.delete_topics(wanted) if wanted else {})
    deleted = [topic for topic in wanted if topic not in errors]
    if json:
        write_json({"deleted": deleted, "errors": {topic: str(error) for topic, error in errors.items()}})
    else:
        for topic in deleted:
            write_line(f"Deleted topic {topic}.")
    if errors:
        raise next(iter(errors.values()))


@app.command(epilog="Example:  [cyan]kafkalake topics offsets clicks --time earliest[/cyan]")
def offsets(
    topic: TopicName,
    time: Annotated[
        str,
        typer.Option(
            "--time",
            metavar="TIME",
            help="earliest, latest, max-timestamp, milliseconds since 1970, or a date and time as 2026-11-21T08:00:00Z.",
        ),
    ] = "latest",
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Print an offset of every partition as TOPIC:PARTITION:OFFSET, as kafka-get-offsets does."""
    from kafkalake.cli.times import parse_time
    from kafkalake.client.administration.partition_offsets import EARLIEST, LATEST, MAX_TIMESTAMP

    places = {"earliest": EARLIEST, "latest": LATEST, "max-timestamp": MAX_TIMESTAMP}
    wanted = places[time] if time in places else parse_time(time, "--time")
    with connect(bootstrap_server) as admin:
        partitions = admin.describe_topic(topic).partitions
        found = admin.list_offsets({(topic, each.partition): wanted for each in partitions})
    if json:
        write_json(
            [
                {"topic": topic, "partition": number, "offset": listed.offset, "timestamp": listed.timestamp_ms}
                for (_, number), listed in sorted(found.items())
            ]
        )
        return
    for (_, number), listed in sorted(found.items()):
        write_line(f"{topic}:{number}:{listed.offset if listed.offset >= 0 else ''}")


@app.command("delete-records")
def delete_records(
    topic: TopicName,
    before_offset: Annotated[
        int,
        typer.Option(min=-1, help="Delete the records before this offset; -1: all that are there.", show_default=False),
    ],
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="Only in this partition (default: all).", show_default=False),
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Delete the oldest records of a topic, up to an offset."""
    from kafkalake.errors import OffsetOutOfRangeError

    failure = None
    with connect(bootstrap_server) as admin:
        known = [info.partition for info in admin.describe_topic(topic).partitions]
        partitions = [(topic, each) for each in partition or known]
        try:
            low_watermarks = admin.delete_records(dict.fromkeys(partitions, before_offset))
        except OffsetOutOfRangeError as error:
            low_watermarks, failure = _deleted_elsewhere(admin, partitions, before_offset, error)
    if json:
        write_json(
            [{"topic": topic, "partition": p, "lowWatermark": low} for (_, p), low in sorted(low_watermarks.items())]
        )
    else:
        for (_, number), low_watermark in sorted(low_watermarks.items()):
            write_line(f"partition: {topic}-{number}\tlow_watermark: {low_watermark}")
    if failure is not None:
        raise failure


def _deleted_elsewhere(
    admin: Admin, partitions: Sequence[TopicPartition], before_offset: int, error: OffsetOutOfRangeError
) -> tuple[dict[TopicPartition, int], Exception]:
    """Return the log start offsets of the partitions that have this offset, and the failure that names the first one without."""
    from kafkalake.client.administration.partition_offsets import EARLIEST, LATEST

    firsts, ends = (admin.list_offsets(dict.fromkeys(partitions, at)) for at in (EARLIEST, LATEST))
    without = [each for each in partitions if ends[each].offset < before_offset]
    if not without:
        return {}, error
    (topic, number), *others = without
    first = f"{topic}-{number}"
    named = f"{len(without)} partitions end before offset {before_offset}, the first: {first}," if others else ""
    said = f"{named or f'partition {first} ends before offset {before_offset},'} at {ends[without[0]].offset}"
    hint = "Nothing was deleted there; --before-offset -1 deletes all that are there, up to each partition's end."
    return {each: firsts[each].offset for each in partitions if each not in without}, Failure(said, hint)


def _require_settings(admin: Admin, topic: str, names: Iterable[str]) -> None:
    """Raise `Failure` for what is no setting of a topic: a broker takes its deletion for done."""
    known = settings_of_topic(admin, topic)
    unknown = [name for name in names if known and name not in known]
    if unknown:
        raise Failure(f"topic '{topic}' has no setting '{unknown[0]}'", unknown_setting_hint(unknown, known))


def _with_setting_hint(error: KafkaError, names: Iterable[str]) -> Exception:
    """Return the same error, with a suggestion if a setting is unknown."""
    from kafkalake.config.topics import TOPIC_SETTINGS
    from kafkalake.errors import InvalidConfigError

    hint = unknown_setting_hint(names, TOPIC_SETTINGS) if isinstance(error, InvalidConfigError) else None
    return Failure(str(error), hint) if hint else error
