"""A follower's fetch that waits while the follower has sent another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract.wire_client import WireClient
from node_in_thread import NodeInThread

from kafkalake.client.requests import FETCH_AS_FOLLOWER, encode_request
from kafkalake.wire.messages.records import FetchRequest, ReplicaState

pytestmark = pytest.mark.process

LONG_MS = 60_000


def test_a_fetch_that_waits_is_answered_once_the_follower_has_sent_another_one(tmp_path: Path) -> None:
    """Of more partitions, such as one of which a segment has just been copied."""
    with NodeInThread(tmp_path / "lake") as node, WireClient(node.servers) as client:
        follower = ReplicaState(replica_id=0, replica_epoch=0)
        waits = FetchRequest(max_wait=LONG_MS, min_bytes=1, session_epoch=0, replica_state=follower)
        for correlation_id in (1, 2):
            client.socket.sendall(encode_request(FETCH_AS_FOLLOWER, 18, correlation_id, "broker-0", waits))
        assert not client.receive("Fetch", 18, 1).error_code
