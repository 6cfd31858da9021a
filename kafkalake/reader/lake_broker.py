"""Finds the running broker of a lake, for readers that commit offsets and statements that change topics.

Brokers are found by their lock files in the lake, whose locks they hold: a copy of a lake has the files without the locks, and the
broker that they name has the original. They are accepted only if they answer with the lake's cluster id, because another process
may use the port by now.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkalake.client.cluster import Cluster
from kafkalake.errors import BrokerUnavailableError, KafkaLakeError
from kafkalake.metadata.identity import known_cluster_id
from kafkalake.metadata.lock_file import holders, running_brokers
from kafkalake.metadata.paths import require_lake

TIMEOUT_MS = 10_000


@contextmanager
def connect(lake: Path) -> Iterator[Cluster]:
    """Yield a connection to a running broker of the lake. Raise `LakeError`, or `BrokerUnavailableError` if there is none."""
    wanted = known_cluster_id(require_lake(lake))
    rows = holders(lake) if wanted is not None else []
    running = running_brokers(lake, rows, time.time_ns() // 1_000_000)
    for row in (row for row in rows if row.broker_id in running):
        with Cluster(
            f"{row.host}:{row.port}",
            client_id="kafkalake-spark",
            request_timeout_ms=TIMEOUT_MS,
            retry_timeout_ms=TIMEOUT_MS,
        ) as cluster:
            try:
                cluster.refresh(())
            except KafkaLakeError:
                continue
            if cluster.cluster_id == wanted:
                yield cluster
                return
    raise BrokerUnavailableError(f"no broker of {lake} is running. Start one: kafkalake broker start --lake {lake}")
