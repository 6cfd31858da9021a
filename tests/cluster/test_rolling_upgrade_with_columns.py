"""Brokers are upgraded one by one to a release that takes batches of columns, and one goes back, while `send_arrow` goes on."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from kafka_reference import BROKERS, Cluster, Kafkalake, kafkalake_cluster, topic_name
from waiting import wait_until

from kafkalake import Admin, Consumer, Producer
from kafkalake.client.administration.reassignments import Election

pytestmark = [pytest.mark.process, pytest.mark.long]

ROWS = 40
SETTINGS = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}

OLD_RELEASE = '''
"""While the file OLD_RELEASE exists, this broker is an older one: it announces no batches of columns, and refuses them."""
import os
from pathlib import Path

from kafkalake.errors import InvalidRecordError
from kafkalake.server.handlers import api_versions
from kafkalake.wire import produced_batch

announced, decode = api_versions._OWN_FEATURES, produced_batch.decode_columns

def release():
    return Path(os.environ["OLD_RELEASE"])

class Features:
    def __radd__(self, others):
        return others if release().exists() else others + announced

def decode_columns(*given, **named):
    if release().exists():
        release().with_suffix(".refused").touch()
        raise InvalidRecordError("a magic of 100")
    release().with_suffix(".taken").touch()
    return decode(*given, **named)

api_versions._OWN_FEATURES, produced_batch.decode_columns = Features(), decode_columns
'''


class Sending:
    """A thread that sends numbered rows to each partition in turn, without waiting for their delivery."""

    def __init__(self, servers: str, topic: str) -> None:
        self._settings = {"bootstrap.servers": servers, "reconnect.backoff.max.ms": 200, "linger.ms": 1}
        self._topic = topic
        self._ended = threading.Event()
        self.sent = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with Producer(self._settings) as producer:
                futures = []
                while not self._ended.wait(0.005):
                    values = [b"%d" % number for number in range(self.sent, self.sent + ROWS)]
                    rows = pa.record_batch({"value": pa.array(values, pa.binary())})
                    futures += [producer.send_arrow(self._topic, rows, partition=each) for each in range(BROKERS)]
                    self.sent += ROWS
                for future in futures:
                    future.get(120)
        except BaseException as error:
            self.error = error

    def go_on(self) -> None:
        """Return when more has been sent."""
        goal = self.sent + 20 * ROWS
        wait_until(lambda: self.sent >= goal or self.error is not None)


def read(servers: str, topic: str, partition: int, count: int) -> list[bytes]:
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as reader:
        reader.assign([(topic, partition)])
        found: list[bytes] = []
        while len(found) < count and (batches := reader.poll_arrow(60)):
            found += [value for batch in batches for value in batch.column("value").to_pylist()]
        return found + [record.value for record in reader.poll(1)]


def test_a_rolling_upgrade_to_columns_and_back_loses_and_doubles_nothing(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(OLD_RELEASE)
    releases = [tmp_path / f"release-{each}" for each in range(BROKERS)]
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    for each in releases:
        each.touch()
    environments = [{"PYTHONPATH": path, "OLD_RELEASE": str(each)} for each in releases]
    with kafkalake_cluster(tmp_path, SETTINGS, environments) as cluster:
        servers, topic = cluster.bootstrap_servers, topic_name("columns")
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topic(topic, partitions=BROKERS, replication_factor=BROKERS)
            with Sending(servers, topic) as sending:
                sending.go_on()
                for number in (*range(BROKERS), 1):
                    upgrade(cluster, admin, topic, number, releases[number])
                    sending.go_on()
        assert sending.error is None
        for partition in range(BROKERS):
            assert read(servers, topic, partition, sending.sent) == [b"%d" % each for each in range(sending.sent)]
    assert not any(each.with_suffix(".refused").exists() for each in releases), "columns to a broker that takes none"
    assert all(each.with_suffix(".taken").exists() for each in releases)


def upgrade(cluster: Cluster[Kafkalake], admin: Admin, topic: str, number: int, release: Path) -> None:
    """Restart a broker with the other release, wait until it is in sync, and have it lead what it led."""
    cluster.brokers[number].stop()
    if release.exists():
        release.unlink()
    else:
        release.touch()
    cluster.brokers[number].start()
    wait_until(lambda: all(len(each.isr) == BROKERS for each in admin.describe_topic(topic).partitions))
    admin.elect_leaders(Election.PREFERRED, [(topic, partition) for partition in range(BROKERS)])
