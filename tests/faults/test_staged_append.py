"""Staged files and a broker that is killed: all of a job's records or none, and once, wherever the kill falls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kafka_reference import Kafkalake, create_topic
from long_runs import first_of
from staged_jobs import addresses, append, consumed, describe, numbered, stage, wait_for_settled

from kafkalake.broker.staged.service import StagedFaultPoint
from kafkalake.broker.transactions.fault_points import KILL_AT
from kafkalake.client.staged_append import OutcomeUnknownError, ask_until
from kafkalake.dataset import topic_dataset
from kafkalake.errors import BrokerUnavailableError, RequestTimedOutError

RECORDS = 40_000
POINTS = ["transaction-prepared", "transaction-before-marker:2", *(point.value for point in StagedFaultPoint)]


@pytest.mark.parametrize("point", first_of(POINTS, 3))
def test_a_broker_killed_in_the_middle_has_appended_all_or_nothing_and_asking_again_appends_once(
    point: str, kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    broker = kafkalake_broker(lake, environment=killed_at(tmp_path, point))
    create_topic(broker, "clicks", partitions=2)
    tasks = [[numbered(0, RECORDS // 2)], [numbered(RECORDS // 2, RECORDS // 2)]]
    request = stage(lake, describe(broker, "clicks"), "job", tasks)
    with pytest.raises(BrokerUnavailableError):
        append(broker, request)
    broker.kill()
    committed = topic_dataset(str(lake), "clicks").count_rows()
    assert committed in (0, RECORDS)

    broker = kafkalake_broker(lake)
    # What was decided is finished, what was not is aborted, before anybody asks again.
    known = wait_for_settled(lake)
    seen = len(consumed(broker.bootstrap_servers, "clicks", "read_committed"))
    assert seen == (RECORDS if known == 0 else 0)
    assert committed <= seen
    answer = append(broker, request)
    assert (answer["records"], answer["again"]) == (RECORDS, seen == RECORDS)
    assert append(broker, request)["again"]
    for isolation in ("read_committed", "read_uncommitted"):
        found = [key for _, _, key in consumed(broker.bootstrap_servers, "clicks", isolation)]
        if isolation == "read_committed":
            assert sorted(found) == sorted(b"%d" % number for number in range(RECORDS))
        else:
            assert {b"%d" % number for number in range(RECORDS)} == set(found)
    assert topic_dataset(str(lake), "clicks").count_rows() == RECORDS


@pytest.mark.parametrize("point", first_of([StagedFaultPoint.COMMITTED.value, "transaction-prepared", *POINTS], 2))
def test_one_version_of_a_job_for_two_topics_is_in_each_once_wherever_the_broker_is_killed(
    point: str, kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path
) -> None:
    lake, named = tmp_path / "lake", {"application": "job", "is_named": True}
    broker = kafkalake_broker(lake, environment=killed_at(tmp_path, ""))
    requests = []
    for topic in ("clicks", "views"):
        create_topic(broker, topic, partitions=2)
        requests.append(stage(lake, describe(broker, topic), f"job-{topic}", [[numbered(0, 3_000)]]) | named)
    assert not append(broker, requests[0])["again"]
    killed_at(tmp_path, point)
    with pytest.raises(BrokerUnavailableError):
        append(broker, requests[1])
    broker.kill()
    broker = kafkalake_broker(lake)
    wait_for_settled(lake)
    for _ in range(2):
        for request in requests:
            append(broker, request)
        assert [topic_dataset(str(lake), topic).count_rows() for topic in ("clicks", "views")] == [3_000, 3_000]
    assert append(broker, requests[0])["again"]


def killed_at(directory: Path, point: str) -> dict[str, str]:
    """The environment of a broker that kills itself there."""
    path = directory / "kill-at"
    path.write_text(point)
    return {KILL_AT: str(path)}


def test_a_job_that_asks_on_finds_the_broker_that_came_back_elsewhere(
    kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    broker = kafkalake_broker(lake, environment=killed_at(tmp_path, StagedFaultPoint.APPENDED_SOME.value))
    create_topic(broker, "clicks", partitions=2)
    request = stage(lake, describe(broker, "clicks"), "job", [[numbered(0, 1000)]])
    ports = [broker.port]
    answers: list[object] = []
    asking = threading.Thread(
        target=lambda: answers.append(ask_until(lambda: [("127.0.0.1", port) for port in ports], request, 60))
    )
    asking.start()
    event = threading.Event()
    while broker.is_running():
        assert not event.wait(0.01)
    broker.kill()
    broker = kafkalake_broker(lake)
    ports[:] = [broker.port]
    asking.join(60)
    assert answers == [{"error": 0, "records": 1000, "again": False, "version": wait_for_settled(lake)}]
    assert len(consumed(broker.bootstrap_servers, "clicks", "read_committed")) == 1000


def test_without_an_answer_in_time_the_outcome_is_unknown_and_said_so(tmp_path: Path) -> None:
    with pytest.raises(OutcomeUnknownError, match="no broker of this lake is running"):
        ask_until(list, {"ask": "append"}, 0.2)


class BrokerWithSlowDisk(Kafkalake):
    """A kafkalake broker whose fsync of the first decision takes four seconds."""

    def _command(self) -> Sequence[str]:
        pairs = [f"{name}={value}" for name, value in self._settings.items()]
        script = Path(__file__).parents[1] / "broker_with_slow_disk.py"
        return [sys.executable, str(script), str(self.lake), str(self.port), "4", *pairs]


@pytest.mark.process
def test_a_decision_that_takes_longer_than_anybody_waits_is_not_made_twice(tmp_path: Path) -> None:
    settings = {"log.flush.interval.messages": "1"}
    broker = BrokerWithSlowDisk(tmp_path / "lake", directory=tmp_path / "broker", settings=settings)
    with broker:
        create_topic(broker, "clicks", partitions=2)
        request = stage(broker.lake, describe(broker, "clicks"), "job", [[numbered(0, 100)]])
        with pytest.raises(RequestTimedOutError):
            append(broker, request)
        answer = ask_until(lambda: addresses(broker), request, 60)
        assert (answer["records"], answer["again"]) == (100, True)
        assert topic_dataset(str(broker.lake), "clicks").count_rows() == 100
        assert len(consumed(broker.bootstrap_servers, "clicks", "read_committed")) == 100
