"""The classes of messages are their schemas: the same fields and types, over all versions served."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_response_schema
from wire.message_codec import MODULES, message_class

from kafkalake.made_array import MadeArray
from kafkalake.run_blocking import take_all
from kafkalake.server.registry import APIS
from kafkalake.wire.messages import controller, groups, membership, security, share_groups, transactions
from kafkalake.wire.messages.cluster import MetadataResponse, PartitionMetadata, TopicMetadata
from kafkalake.wire.messages.codec import decode_response, encode_response, encode_response_in_steps
from kafkalake.wire.messages.groups import JoinGroupResponse, JoinGroupResponseMember
from kafkalake.wire.messages.message import Message, Response
from kafkalake.wire.messages.own_keys import OWN_FROM
from kafkalake.wire.messages.own_schemas import OWN_REQUESTS, OWN_RESPONSES
from kafkalake.wire.messages.reading import reader
from kafkalake.wire.messages.schemas import EXTENDED_REQUESTS, EXTENDED_RESPONSES, request_schema, response_schema
from kafkalake.wire.messages.shapes import Shape, shapes, structs
from kafkalake.wire.messages.writing import ManyElementsError, response_writer
from kafkalake.wire.staged_append import API_KEY as APPEND_STAGED_KEY

KEYS = sorted(set(APIS) - {APPEND_STAGED_KEY})
TYPES = {"bool": "bool", "float64": "float", "string": "str", "uuid": "UUID", "bytes": "Buffer", "records": "Buffer"}


def fields_of(message: type[Message], schema: Any) -> Iterator[tuple[type[Message], Shape]]:
    """Return each (class, field of kio's schema), those of structs too."""
    for shape in shapes(schema):
        yield message, shape
        if shape.is_struct:
            yield from fields_of(structs(message)[shape.name], shape.kind)


def annotation(message: type[Message], shape: Shape, nullable: bool) -> str:
    kind = structs(message)[shape.name].__name__ if shape.is_struct else TYPES.get(shape.kind, "int")
    found = f"Sequence[{kind}]" if shape.is_array else kind
    return f"{found} | None" if nullable else found


def loads(key: int, direction: str) -> list[Any]:
    load = request_schema if direction == "Request" else response_schema
    return [load(key, version) for version in range(APIS[key].lowest, APIS[key].highest + 1)]


def test_the_messages_of_kafka_that_have_own_fields_are_known_without_these() -> None:
    for own, extended in ((OWN_REQUESTS, EXTENDED_REQUESTS), (OWN_RESPONSES, EXTENDED_RESPONSES)):
        assert {(key, version) for key, version in own if key < OWN_FROM} == extended


def test_the_classes_have_the_fields_of_all_versions_and_their_types() -> None:
    expected: dict[tuple[type[Message], str], str] = {}
    for key in KEYS:
        for direction in ("Request", "Response"):
            found = [
                each for schema in loads(key, direction) for each in fields_of(message_class(key, direction), schema)
            ]
            nullable = {
                (message, shape.name)
                for message, shape in found
                if shape.nullable
                or shape.kind == "uuid"
                or (shape.is_struct and not shape.is_array and shape.tag is not None)
            }
            for message, shape in found:
                place = message, shape.name
                expected[place] = annotation(message, shape, place in nullable)
    declared = {
        (message, name): next(each.__annotations__[name] for each in message.__mro__ if name in each.__annotations__)
        for module in MODULES
        for message in vars(module).values()
        if isinstance(message, type) and issubclass(message, Message) and message not in (Message, Response)
        for name in message.defaults
    }
    assert {k: (v, declared.get(k)) for k, v in expected.items() if declared.get(k) != v} == {}
    unknown = declared.keys() - expected.keys()
    without = (
        transactions.WriteTxnMarkersResponse,
        controller.DescribeQuorumResponse,
        membership.EnvelopeResponse,
        security.SaslHandshakeResponse,
        security.SaslAuthenticateResponse,
        share_groups.InitializeShareGroupStateResponse,
        share_groups.ReadShareGroupStateResponse,
        share_groups.WriteShareGroupStateResponse,
        share_groups.DeleteShareGroupStateResponse,
        share_groups.ReadShareGroupStateSummaryResponse,
    )
    assert unknown == {(message, "throttle_time") for message in without}


def test_a_response_with_many_elements_is_not_written_at_once() -> None:
    partitions = MadeArray(lambda index: PartitionMetadata(partition_index=index, replica_nodes=(1, 2)), range(100))
    message = MetadataResponse(topics=[TopicMetadata(name="t", partitions=partitions)])
    with pytest.raises(ManyElementsError):
        encode_response(3, 12, 7, message, elements_max=100)
    at_once = encode_response(3, 12, 7, message, elements_max=101)
    steps = encode_response_in_steps(3, 12, 7, message)
    assert sum(1 for _ in iter(lambda: next(steps, steps), steps)) == 102  # the partitions, the topic and the end
    assert take_all(encode_response_in_steps(3, 12, 7, message)) == at_once
    assert len(decode_response(MetadataResponse, 3, 12, 7, at_once[4:]).topics[0].partitions) == 100


def test_long_bytes_count_as_several_elements() -> None:
    members = [JoinGroupResponseMember(member_id="m", metadata=bytes(1 << 20))]
    with pytest.raises(ManyElementsError):
        encode_response(11, 9, 7, JoinGroupResponse(members=members), elements_max=256)
    encode_response(11, 9, 7, JoinGroupResponse(members=members), elements_max=257)


def test_an_array_is_made_as_it_is_read() -> None:
    made = MadeArray(lambda number: number * number, range(2, 6))
    assert (len(made), list(made), made[1], list(made[1:3])) == (4, [4, 9, 16, 25], 9, [9, 16])
    assert made == [4, 9, 16, 25]
    assert made != [4, 9, 16] and made != [4, 9, 16, 26] and made != 4


def test_an_unknown_field_raises() -> None:
    with pytest.raises(TypeError, match="is_default"):
        groups.HeartbeatResponse(is_default=True)  # type: ignore[call-arg]


def test_a_class_without_a_field_of_its_schema_is_refused() -> None:
    schema: Any = load_response_schema(12, 4)
    with pytest.raises(TypeError, match="throttle_time"):
        reader(groups.HeartbeatRequest, schema)
    with pytest.raises(TypeError, match="throttle_time"):
        response_writer(groups.HeartbeatRequest, schema)


def test_messages_compare_by_their_fields() -> None:
    assert groups.HeartbeatRequest() == groups.HeartbeatRequest()
    assert groups.HeartbeatRequest(group_id="a") != groups.HeartbeatRequest(group_id="b")
    assert "group_id='a'" in repr(groups.HeartbeatRequest(group_id="a"))
    without_values = groups.HeartbeatRequest.__new__(groups.HeartbeatRequest)  # as a debugger sees it in `__init__`
    assert repr(without_values) == "HeartbeatRequest()"


@pytest.mark.parametrize("key", KEYS, ids=lambda key: APIS[key].name)
def test_a_handler_answers_with_the_response_of_its_api(key: int) -> None:
    """Its annotation, or what it passes to `reply` and `work` if it has none."""
    source = Path(sys.modules[APIS[key].handle.__module__].__file__ or "").read_text()
    expected = message_class(key, "Response").__name__
    roots = {message_class(each, "Response").__name__ for each in KEYS}
    assert {name for name in re.findall(r"\b\w+Response\b", source) if name in roots} <= {expected}
    returned = re.search(r"^(?:async )?def handle\([^)]*\) -> ([^:]*):", source, re.M)
    assert returned is not None
    kinds = set(re.findall(r"\w+", returned[1])) - {"Generator", "Coroutine", "Answer", "None", "object", "Any"}
    assert kinds <= {expected}
