"""A topic with gaps between its offsets, as compaction leaves them, read by other people's clients from every offset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import local_compaction
import pytest
from compacted_lake import CompactedTopic, compact
from compaction_model import Written, compacted
from kafka_clients import CLIENTS, COMMITTED, UNCOMMITTED, Client, Record
from kafka_reference import Kafkalake
from written_lake import ABORT, COMMIT

LAST = b"the last record"


@pytest.fixture(scope="module")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Written], int]:
    """A lake with the topic `states`, what is left in it, and its log end. Whole segments are empty, aborted records gone."""
    path = tmp_path_factory.mktemp("gaps") / "lake"
    topic = CompactedTopic(path, **{"internal.segment.bytes": "9000"})
    for number in range(12):
        for batch in range(3):
            topic.write(
                [(b"k%d" % ((number + batch + i) % 7), b"%d" % number + b"v" * 60) for i in range(5)], producer=7
            )
        if number % 4 == 1:
            topic.write([(b"aborted", b"x"), (b"k1", b"aborted")], producer=8, transactional=True)
            topic.write([(b"committed", b"%d" % number)], producer=9, transactional=True)
            topic.end(8, ABORT)
            topic.end(9, COMMIT)
        topic.seal()
    topic.write([(b"k%d" % i, None) for i in range(3)])
    topic.seal()
    topic.write([(b"k1", b"in the active segment"), (b"end", LAST)])
    cleaned_to = topic.publish()
    with pytest.MonkeyPatch.context() as patch:
        local_compaction.install(patch)
        compact(path, "here")
    end = topic.log.log_end_offset
    topic.lake.close()
    left = compacted(topic.records, cleaned_to)
    assert len(left) < 20 < end
    return path, left, end


def expected(left: list[Written], start: int) -> list[Record]:
    return [
        Record(record.key, record.value, record.headers, record.timestamp, record.offset)
        for record in left
        if record.offset >= start
    ]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_reads_what_is_left_from_any_offset(
    kafkalake_broker: Callable[..., Kafkalake], gaps: tuple[Path, list[Written], int], client: Client
) -> None:
    lake, left, end = gaps
    broker = kafkalake_broker(lake)
    servers = broker.bootstrap_servers
    assert client.bounds(servers, "states", 0) == (0, end)
    for start in [0, 1, 50, 100, left[0].offset, left[0].offset + 1, left[-3].offset + 1, end - 1]:
        wanted = expected(left, start)
        for isolation in (UNCOMMITTED, COMMITTED):
            assert client.read(servers, "states", 0, start, len(wanted), isolation) == wanted
    for record in left[::3]:
        assert client.offset_at(servers, "states", 0, record.timestamp) == record.offset
    assert client.offset_at(servers, "states", 0, 0) == left[0].offset
