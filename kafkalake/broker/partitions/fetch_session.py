"""The follower's side of a fetch session with a leader: it names its partitions once, and then only changes (KIP-227).

A request carries the session's id and an epoch that counts its requests:

    id    epoch   names
    any   0       all partitions, and asks for a session, closing that one; the answer has its id
    0     -1      all partitions, without a session: sent while the answer to the one before is under way
    n     1, 2    the partitions that are asked for otherwise than in the request before, and those that are not any more

After an error the next request asks for a new session. The leader's side is `follower_sessions`. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kafkalake.broker.partitions.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from kafkalake.broker.partitions.leader_replicas import AskedReplica, ReplicaId


class SessionRequest(NamedTuple):
    """A request's session, and the partitions that it names and forgets. `attempt`: the number of the attempt to have a session."""

    session_id: int
    epoch: int
    named: Sequence[AskedReplica]
    forgotten: Sequence[ReplicaId]
    attempt: int


class FetchSession:
    """See the module. `begin` and then `answered` or `failed` for each request, in their order."""

    def __init__(self) -> None:
        self._attempt = 0
        self._session_id = self._ended_id = 0
        self._epoch = INITIAL_EPOCH
        """Of the next request."""
        self._named: set[ReplicaId] = set()
        self._untold: dict[ReplicaId, None] = {}
        """The partitions that the leader is to hear of in the next request of the session."""

    def begin(self, asked: Mapping[ReplicaId, AskedReplica], changed: Collection[ReplicaId]) -> SessionRequest:
        """Return the next request for the partitions `asked`, of which only `changed` are others than in the one before."""
        if self._session_id:
            self._untold.update(dict.fromkeys(changed))
            return self._incremental(asked)
        if self._epoch != INITIAL_EPOCH:
            self._untold.update(dict.fromkeys(changed))
            return SessionRequest(0, FINAL_EPOCH, list(asked.values()), (), self._attempt)
        self._epoch, self._named, self._untold = 1, set(asked), {}
        return SessionRequest(self._ended_id, INITIAL_EPOCH, list(asked.values()), (), self._attempt)

    def _incremental(self, asked: Mapping[ReplicaId, AskedReplica]) -> SessionRequest:
        named: list[AskedReplica] = []
        gone: list[ReplicaId] = []
        for each in self._untold:
            question = asked.get(each)
            if question is None:
                gone.append(each)
            else:
                named.append(question)
        forgotten = [each for each in gone if each in self._named]
        self._named.update(self._untold)  # by their hashes: that of a UUID is computed in Python
        self._named.difference_update(gone)
        self._untold = {}
        request = SessionRequest(self._session_id, self._epoch, named, forgotten, self._attempt)
        self._epoch += 1
        return request

    def answered(self, request: SessionRequest, session_id: int) -> None:
        """Go on with the session that the answer names, 0 for none."""
        if request.epoch == INITIAL_EPOCH and request.attempt == self._attempt:
            self._session_id = session_id
        if request.epoch != FINAL_EPOCH and not session_id:
            self.failed(request)

    def failed(self, request: SessionRequest) -> None:
        """Ask for a new session in the next request, unless one was asked for since."""
        if request.attempt == self._attempt:
            self._attempt += 1
            self._ended_id = self._session_id
            self._session_id, self._epoch = 0, INITIAL_EPOCH
