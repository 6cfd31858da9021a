"""Answers Spark's questions for streams. Each question has everything that its answer depends on; what is kept saves time only.

A planner that is started again, and one that has dropped a stream, continue it from the offsets that Spark passes.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import asdict
from typing import Any

from kafkalake.reader.changed_values import evolved_avro
from kafkalake.reader.positions import from_json, to_json
from kafkalake.reader.read_options import READ_COMMITTED, TIME_ZONE_NOTE, ReadOptions, Use, parse_options
from kafkalake.spark.planner.columns import check_columns
from kafkalake.spark.planner.lakes import lake_path, open_lake
from kafkalake.spark.planner.question import Question
from kafkalake.spark.planner.tables import TOPIC_ID_NOTE, id_of, require_same
from kafkalake.spark.planner.task_json import avro_answer, encode_task
from kafkalake.spark.stream.tails import check_tail_options
from kafkalake.spark.stream.topic_stream import TopicStream

STREAMS_MAX = 256

_streams: OrderedDict[str, TopicStream] = OrderedDict()
_opening = threading.Lock()


def open_stream(question: Question) -> dict[str, Any]:
    """Return what Spark needs to know of a stream of `columns` (of Kafka's) and `fields` (of values) before its first batch.

    description: as the progress of a query shows it. offsets_max, offsets_min: of a batch, or None. delay_ms_max: of a batch with
    fewer than `offsets_min`. has_group: whether offsets are committed. Raise the errors of `parse_options`, `check_columns`,
    `open_lake` and, unless `failOnDataLoss` is false, with which a stream goes on with the next topic of the name, `require_same`.
    """
    options, topic_id = _stream(question).options, question["options"].get(TOPIC_ID_NOTE)
    check_columns(question, options)
    if topic_id is not None and options.topics is not None and options.fail_on_data_loss:
        (name,) = options.topics
        require_same(name, topic_id, id_of(options.lake, name))
    return {
        "description": describe(options),
        "offsets_max": options.offsets_per_trigger_max,
        "offsets_min": options.offsets_per_trigger_min,
        "delay_ms_max": options.trigger_delay_ms_max,
        "has_group": options.group is not None,
    }


def begin_stream(question: Question) -> str:
    """Return the initial offsets, stored in the checkpoint at `checkpoint`. Raise the errors of `TopicStream.begin`."""
    return json.dumps(_stream(question).begin(question["checkpoint"]))


def readable_ends(question: Question) -> str:
    """Return the current ends of the partitions. Raise the errors of `TopicStream.readable_ends`."""
    return json.dumps(to_json(_stream(question).readable_ends()))


def next_batch(question: Question) -> dict[str, str]:
    """Return the end of the batch that begins at `start`, and the readable ends of the partitions.

    offsets_max: of the batch. target: not to be passed. may_wait: for `minOffsetsPerTrigger`. is_done: `start` is the end of a
    batch, which is committed to the group. Raise the errors of `TopicStream.next_batch`.
    """
    stream, start, target = _stream(question), json.loads(question["start"]), question["target"]
    if question["is_done"]:
        stream.commit(start)
    found = stream.next_batch(
        start,
        offsets_max=question["offsets_max"],
        target=None if target is None else from_json(json.loads(target)),
        may_wait=question["may_wait"],
    )
    end = question["start"] if found.end == start else json.dumps(found.end)  # Spark compares the text
    return {"end": end, "readable_ends": json.dumps(to_json(found.readable_ends))}


def first_unread(question: Question) -> list[dict[str, Any]]:
    """Return slices with the first records from `start` on, before `readable_ends`. Raise the errors of `plan_batch`."""
    ends = from_json(json.loads(question["readable_ends"]))
    return [asdict(piece) for piece in _stream(question).plan_first(json.loads(question["start"]), ends)]


def plan_batch(question: Question) -> list[dict[str, Any]]:
    """Return the tasks of the batch from `start` to `end`. Raise the errors of `TopicStream.plan` and `evolved_avro`."""
    stream = _stream(question)
    groups = stream.plan(json.loads(question["start"]), json.loads(question["end"]))
    avro = evolved_avro(stream.options, stream.tables)
    return [encode_task(group, avro) for group in groups]


def commit_batch(question: Question) -> None:
    """Commit the batches up to `end` to the stream's group, if it has one."""
    _stream(question).commit(json.loads(question["end"]))


def check_real_time(question: Question) -> None:
    """Raise `ConfigurationError` if the stream cannot run in Real-Time Mode."""
    check_tail_options(_stream(question).options)


def plan_tails(question: Question) -> list[dict[str, Any]]:
    """Return the partitions to follow from `start` on. Raise the errors of `TopicStream.plan_tails` and `evolved_avro`."""
    stream = _stream(question)
    tails = stream.plan_tails(json.loads(question["start"]))
    avro = avro_answer(evolved_avro(stream.options, stream.tables))
    return [
        {
            "topic": tail.topic,
            "topic_id": tail.topic_id,
            "partition": tail.partition,
            "directory": str(tail.directory),
            "slices": [asdict(piece) for piece in tail.slices],
            "from_offset": tail.from_offset,
            "is_committed": stream.options.isolation == READ_COMMITTED,
            "fail_on_data_loss": stream.options.fail_on_data_loss,
            "avro": avro,
        }
        for tail in tails
    ]


def merge_ends(question: Question) -> str:
    """Return the offsets of a stream whose tasks have ended at `ends`."""
    ends = question["ends"]
    positions = {(end["topic"], end["partition"]): end["offset"] for end in ends}
    return json.dumps(to_json(positions, {end["topic"]: end["topic_id"] for end in ends}))


def describe(options: ReadOptions) -> str:
    """Return a stream's description, like that of Spark's Kafka source: `KafkaLake[Subscribe[clicks], /data/lake]`."""
    if options.pattern is not None:
        topics = f"SubscribePattern[{options.pattern}]"
    elif options.assigned is not None:
        partitions = (f"{topic}-{number}" for topic, numbers in options.assigned.items() for number in numbers)
        topics = f"Assign[{', '.join(partitions)}]"
    else:
        topics = f"Subscribe[{', '.join(options.topics or ())}]"
    return f"KafkaLake[{topics}, {lake_path(options.lake)}]"


def _stream(question: Question) -> TopicStream:
    """Return the stream of this name, or a new one. Its lake may have been made anew at the same path since."""
    name, given = question["stream"], question["options"]
    with _opening:
        stream = _streams.pop(name, None)
        options = parse_options(given, Use.STREAM, given.get(TIME_ZONE_NOTE)) if stream is None else stream.options
        tables = open_lake(options.lake)
        if stream is None or stream.tables is not tables:
            stream = TopicStream(options, tables)
        _streams[name] = stream
        if len(_streams) > STREAMS_MAX:
            _streams.popitem(last=False)
    return stream
