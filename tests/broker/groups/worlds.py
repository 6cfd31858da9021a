"""The same group requests to our coordinator and to an Apache Kafka, so that a test can compare what they answer.

Answers are compared as plain tuples of what is the same everywhere: error label, generation, leader by role. A request that
waits gives an `Answer` that is asked for later.
"""

from __future__ import annotations

import datetime
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from io import BytesIO
from typing import Any, Protocol

from broker.groups.coordination import Cluster
from broker.groups.scenario import protocols
from kio.serial import entity_reader, entity_writer

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.groups.offset_requests import OffsetToCommit
from kafkalake.broker.groups.records import CommittedOffset
from kafkalake.broker.groups.requests import LeavingMember, SyncRequest
from kafkalake.errors import KafkaError, error_for_code

SESSION_MS = 6_000
REBALANCE_MS = 3_000
PATIENCE_S = 30.0


def label(error: ErrorClass | int | None) -> str:
    """The name of an error, however it is given."""
    if isinstance(error, int):
        return error_for_code(error).label if error else "NONE"
    return "NONE" if error is None else error.label


class Answer(Protocol):
    def get(self) -> dict[str, Any]:
        """The answer; waits for it."""
        ...

    @property
    def is_there(self) -> bool: ...


class World(Protocol):
    """Requests to one coordinator; `settle` lets what is under way happen."""

    def join(self, group: str, member: str, instance: str | None, names: Sequence[str], topic: str) -> Answer: ...
    def sync(
        self, group: str, member: str, generation: int, assignments: Mapping[str, bytes], instance: str | None
    ) -> Answer: ...
    def heartbeat(self, group: str, member: str, generation: int, instance: str | None) -> str: ...
    def leave(self, group: str, members: Sequence[tuple[str, str | None]]) -> list[str]: ...
    def commit(
        self, group: str, offsets: Sequence[tuple[str, int, int, str]], member: str, generation: int
    ) -> list[str]: ...
    def fetch(self, group: str) -> list[tuple[str, int, int, str]]: ...
    def describe(self, group: str) -> tuple[str, str, str, str, int]: ...
    def delete(self, groups: Sequence[str]) -> list[str]: ...
    def delete_offsets(self, group: str, topic: str, partitions: Sequence[int]) -> list[str] | str: ...
    def settle(self) -> None: ...
    def pass_time(self, milliseconds: int) -> None: ...


class _Now:
    """An answer that our coordinator gives through a list."""

    def __init__(self, answers: list[Any], show: Callable[[Any], dict[str, Any]], settle: Callable[[], None]) -> None:
        self._answers, self._show, self._settle = answers, show, settle

    @property
    def is_there(self) -> bool:
        return bool(self._answers)

    def get(self) -> dict[str, Any]:
        self._settle()
        assert len(self._answers) == 1
        return self._show(self._answers[0])


class OurWorld:
    """Our coordinator, on a manual clock."""

    def __init__(self) -> None:
        self.cluster = Cluster(group_initial_rebalance_delay_ms=0)

    def settle(self) -> None:
        self.cluster.advance(1)

    def pass_time(self, milliseconds: int) -> None:
        self.cluster.advance(milliseconds, step_ms=10)

    def join(self, group: str, member: str, instance: str | None, names: Sequence[str], topic: str) -> Answer:
        answers = self.cluster.join(
            group,
            member,
            group_instance_id=instance,
            protocols=protocols(*names, topic=topic) if names else (),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        return _Now(
            answers,
            lambda result: {
                "error": label(result.error),
                "member": result.member_id,
                "generation": result.generation_id,
                "leader": result.leader,
                "protocol": result.protocol_name,
                "members": sorted(one.member_id for one in result.members),
                "skip": result.skip_assignment,
            },
            self.settle,
        )

    def sync(
        self, group: str, member: str, generation: int, assignments: Mapping[str, bytes], instance: str | None
    ) -> Answer:
        answers = self.cluster.sync(group, SyncRequest(member, generation, assignments, instance, "consumer", "range"))
        return _Now(answers, lambda one: {"error": label(one.error), "assignment": one.assignment}, self.settle)

    def heartbeat(self, group: str, member: str, generation: int, instance: str | None) -> str:
        return _raised(lambda: self.cluster.coordinator.heartbeat(group, member, generation, instance))

    def leave(self, group: str, members: Sequence[tuple[str, str | None]]) -> list[str]:
        results = self.cluster.leave(group, *[LeavingMember(*one) for one in members])[0]
        return [label(result.error) for result in results]

    def commit(
        self, group: str, offsets: Sequence[tuple[str, int, int, str]], member: str = "", generation: int = -1
    ) -> list[str]:
        asked = [OffsetToCommit(topic, index, offset, -1, metadata) for topic, index, offset, metadata in offsets]
        results = self.cluster.commit(group, *asked, member_id=member, generation_id=generation)[0]
        return [label(results[one.topic, one.partition]) for one in asked]

    def fetch(self, group: str) -> list[tuple[str, int, int, str]]:
        found = self.cluster.offsets.fetch(group, self.cluster.offsets.committed_in(group), require_stable=True)
        return sorted(
            (*key, value.offset, value.metadata) for key, value in found.items() if isinstance(value, CommittedOffset)
        )

    def describe(self, group: str) -> tuple[str, str, str, str, int]:
        try:
            one = self.cluster.coordinator.describe_group(group)
        except KafkaError as error:
            return (error.label, "Dead", "", "", 0)
        return ("NONE", one.state, one.protocol_type, one.protocol_name, len(one.members))

    def delete(self, groups: Sequence[str]) -> list[str]:
        results = self.cluster.delete_groups(*groups)[0]
        return [label(results[group]) for group in groups]

    def delete_offsets(self, group: str, topic: str, partitions: Sequence[int]) -> list[str] | str:
        answers: list[Any] = []
        keys = [(topic, index) for index in partitions]
        error = _raised(lambda: self.cluster.offsets.delete(group, keys, answers.append))
        return error if error != "NONE" else [label(answers[0][key]) for key in keys]


def _raised(call: Callable[[], None]) -> str:
    try:
        call()
    except KafkaError as error:
        return error.label
    return "NONE"


class _Later:
    """An answer that comes over a connection of its own."""

    def __init__(self, call: Callable[[], dict[str, Any]]) -> None:
        self._result: dict[str, Any] | BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], dict[str, Any]]) -> None:
        try:
            self._result = call()
        except BaseException as error:
            self._result = error

    @property
    def is_there(self) -> bool:
        return self._result is not None

    def get(self) -> dict[str, Any]:
        self._thread.join(PATIENCE_S)
        assert isinstance(self._result, dict), f"no answer: {self._result!r}"
        return self._result


class KafkaWorld:
    """An Apache Kafka, asked over raw connections with the newest versions."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, port = bootstrap_servers.split(":")
        self._address = (host, int(port))
        self._numbers = itertools.count(1)
        self._last_waiting: _Later | None = None

    def wait_for_coordinator(self, group: str) -> None:
        """Until the broker coordinates the group; it makes its journal when it is first asked for."""
        deadline = time.monotonic() + PATIENCE_S
        self.ask("find_coordinator", 4, key_type=0, coordinator_keys=(group,))
        while self.heartbeat(group, "nobody", 0, None) != "UNKNOWN_MEMBER_ID":
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.05)

    def settle(self) -> None:
        """Give requests that wait the time to arrive: the broker shows no sign of it that could be waited for."""
        time.sleep(0.3)

    def pass_time(self, milliseconds: int) -> None:
        time.sleep(milliseconds / 1000)

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        """One request on a connection of its own."""
        module = import_module(f"kio.schema.{api}.v{version}.request")
        answers = import_module(f"kio.schema.{api}.v{version}.response")
        title = "".join(part.capitalize() for part in api.split("_"))
        request = getattr(module, f"{title}Request")(**fields)
        response_type = getattr(answers, f"{title}Response")
        header_type = request.__header_schema__
        frame = BytesIO()
        number = next(self._numbers)
        header = header_type(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=number,
            client_id="c",
        )
        entity_writer(header_type)(frame, header)
        entity_writer(type(request))(frame, request)
        with socket.create_connection(self._address, timeout=PATIENCE_S) as connection:
            connection.sendall(struct.pack(">i", len(frame.getvalue())) + frame.getvalue())
            length = struct.unpack(">i", _receive(connection, 4))[0]
            data = _receive(connection, length)
        _, position = entity_reader(response_type.__header_schema__)(data, 0)
        response, _ = entity_reader(response_type)(data, position)
        return response

    def join(self, group: str, member: str, instance: str | None, names: Sequence[str], topic: str) -> Answer:
        module = import_module("kio.schema.join_group.v9.request")

        def call() -> dict[str, Any]:
            response = self.ask(
                "join_group",
                9,
                group_id=group,
                session_timeout=datetime.timedelta(milliseconds=SESSION_MS),
                rebalance_timeout=datetime.timedelta(milliseconds=REBALANCE_MS),
                member_id=member,
                group_instance_id=instance,
                protocol_type="consumer",
                protocols=tuple(
                    module.JoinGroupRequestProtocol(name=one.name, metadata=one.metadata)
                    for one in (protocols(*names, topic=topic) if names else ())
                ),
            )
            return {
                "error": label(int(response.error_code)),
                "member": response.member_id,
                "generation": response.generation_id,
                "leader": response.leader,
                "protocol": response.protocol_name,
                "members": sorted(one.member_id for one in response.members),
                "skip": response.skip_assignment,
            }

        return _Later(call)

    def sync(
        self, group: str, member: str, generation: int, assignments: Mapping[str, bytes], instance: str | None
    ) -> Answer:
        module = import_module("kio.schema.sync_group.v5.request")

        def call() -> dict[str, Any]:
            response = self.ask(
                "sync_group",
                5,
                group_id=group,
                generation_id=generation,
                member_id=member,
                group_instance_id=instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=tuple(
                    module.SyncGroupRequestAssignment(member_id=one, assignment=data)
                    for one, data in assignments.items()
                ),
            )
            return {"error": label(int(response.error_code)), "assignment": response.assignment}

        return _Later(call)

    def heartbeat(self, group: str, member: str, generation: int, instance: str | None) -> str:
        response = self.ask(
            "heartbeat", 4, group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
        )
        return label(int(response.error_code))

    def leave(self, group: str, members: Sequence[tuple[str, str | None]]) -> list[str]:
        module = import_module("kio.schema.leave_group.v5.request")
        leaving = tuple(
            module.MemberIdentity(member_id=member, group_instance_id=instance, reason=None)
            for member, instance in members
        )
        response = self.ask("leave_group", 5, group_id=group, members=leaving)
        assert not int(response.error_code)
        return [label(int(one.error_code)) for one in response.members]

    def commit(
        self, group: str, offsets: Sequence[tuple[str, int, int, str]], member: str = "", generation: int = -1
    ) -> list[str]:
        module = import_module("kio.schema.offset_commit.v9.request")
        topics = tuple(
            module.OffsetCommitRequestTopic(
                name=topic,
                partitions=(
                    module.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        committed_metadata=metadata,
                    ),
                ),
            )
            for topic, index, offset, metadata in offsets
        )
        response = self.ask(
            "offset_commit",
            9,
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=None,
            topics=topics,
        )
        found = {
            (topic.name, one.partition_index): label(int(one.error_code))
            for topic in response.topics
            for one in topic.partitions
        }
        return [found[topic, index] for topic, index, _, _ in offsets]

    def fetch(self, group: str) -> list[tuple[str, int, int, str]]:
        module = import_module("kio.schema.offset_fetch.v9.request")
        asked = module.OffsetFetchRequestGroup(group_id=group, member_id=None, member_epoch=-1, topics=None)
        response = self.ask("offset_fetch", 9, groups=(asked,), require_stable=True)
        return sorted(
            (topic.name, one.partition_index, one.committed_offset, one.metadata)
            for topic in response.groups[0].topics
            for one in topic.partitions
        )

    def describe(self, group: str) -> tuple[str, str, str, str, int]:
        one = self.ask("describe_groups", 6, groups=(group,), include_authorized_operations=False).groups[0]
        return (
            label(int(one.error_code)),
            one.group_state,
            one.protocol_type,
            one.protocol_data,
            len(one.members),
        )

    def delete(self, groups: Sequence[str]) -> list[str]:
        response = self.ask("delete_groups", 2, groups_names=tuple(groups))
        found = {one.group_id: label(int(one.error_code)) for one in response.results}
        return [found[group] for group in groups]

    def delete_offsets(self, group: str, topic: str, partitions: Sequence[int]) -> list[str] | str:
        module = import_module("kio.schema.offset_delete.v0.request")
        wanted = module.OffsetDeleteRequestTopic(
            name=topic,
            partitions=tuple(module.OffsetDeleteRequestPartition(partition_index=index) for index in partitions),
        )
        response = self.ask("offset_delete", 0, group_id=group, topics=(wanted,))
        if int(response.error_code):
            return label(int(response.error_code))
        found = {one.partition_index: label(int(one.error_code)) for one in response.topics[0].partitions}
        return [found[index] for index in partitions]


def _receive(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = connection.recv(length - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return data
