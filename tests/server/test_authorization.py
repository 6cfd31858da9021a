"""What each API does with which kind of resource is in its row of the registry; handlers ask for nothing else."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from contract.wire_client import WireClient, batch, code, create_topic, fetch, produce
from node_in_thread import NodeInThread

from kafkalake.errors import TopicAuthorizationError
from kafkalake.server import handlers
from kafkalake.server.authorizer import ANONYMOUS, AllowEverything, Operation, Principal, Resource
from kafkalake.server.registry import APIS, Api
from kafkalake.server.request import Request

ROWS = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
TOKENS = {f"{verb}DelegationToken" for verb in ("Create", "Renew", "Expire", "Describe")}
REFUSED = {
    "SaslHandshake",
    "SaslAuthenticate",
    "ShareGroupHeartbeat",
    "ShareGroupDescribe",
    "ShareFetch",
    "ShareAcknowledge",
}
REFUSED |= {f"{verb}ShareGroupOffsets" for verb in ("Describe", "Alter", "Delete")}
WITHOUT_OPERATION = {"ApiVersions", "DescribeCluster", *TOKENS, *REFUSED}
ASKS = {
    r"\bfind_(?:described_)?topic(?:_by_id)?\(": Resource.TOPIC,
    r"\bcheck_group\(": Resource.GROUP,
    r"\bcheck_transactional_id\(": Resource.TRANSACTIONAL_ID,
    **{rf"request\.allows\(Resource\.{resource.name}\b": resource for resource in Resource},
}
SHARED = re.compile(
    r"from kafkalake\.server\.(access_control_lists|config_changes|handed_batches|produce_admission) import"
)


def sources(api: Api) -> str:
    """The handler's source, with that of the modules which work for several handlers."""
    path = Path(sys.modules[api.handle.__module__].__file__ or "")
    text = path.read_text()
    return text + "".join((path.parent.parent / f"{name}.py").read_text() for name in SHARED.findall(text))


@ROWS
def test_a_handler_asks_for_the_resources_of_its_row(api: Api) -> None:
    text = sources(api)
    assert {resource for pattern, resource in ASKS.items() if re.search(pattern, text)} == set(api.operations)


@ROWS
def test_the_authorizer_is_asked_for_the_row_s_operation(api: Api) -> None:
    asked: list[Any] = []

    def allows(*arguments: Any) -> bool:
        asked.append(arguments)
        return False

    context: Any = SimpleNamespace(authorizer=SimpleNamespace(allows=allows))
    connection: Any = SimpleNamespace(logs_requests=False, principal=ANONYMOUS)
    request = Request(connection, context, api, api.highest, 1, None, None, 0, body_is_kept=True)
    for resource, operation in api.operations.items():
        assert not request.allows(resource, "a")
        assert asked.pop() == (ANONYMOUS, operation, resource, "a")
    for resource in set(Resource) - set(api.operations):
        with pytest.raises(KeyError):
            request.allows(resource, "a")
    assert not request.allows(Resource.TOPIC, "a", Operation.CREATE)
    assert asked == [(ANONYMOUS, Operation.CREATE, Resource.TOPIC, "a")]


def test_which_apis_ask_for_nothing() -> None:
    assert {api.name for api in APIS.values() if not api.operations} == WITHOUT_OPERATION


def test_no_handler_passes_the_registry_by() -> None:
    """But for the list of authorized operations (`operation_bits`)."""
    directory = Path(next(iter(handlers.__path__)))
    found = [path.name for path in directory.rglob("*.py") if "authorizer.allows" in path.read_text()]
    assert found == ["metadata.py"]


@pytest.mark.process
def test_a_topic_that_may_not_be_read_is_refused_in_every_fetch_of_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden: set[str] = set()

    def allows(_: object, principal: Principal, operation: Operation, resource: Resource, name: str) -> bool:
        return not (operation is Operation.READ and resource is Resource.TOPIC and name in hidden)

    monkeypatch.setattr(AllowEverything, "allows", allows)
    with NodeInThread(tmp_path / "lake") as node, WireClient(node.servers) as client:
        for name in ("open", "secret"):
            create_topic(client, name, 1)
            produce(client, name, batch([(b"k", b"v")]))
        session = 0

        def errors(epoch: int) -> dict[str, int]:
            nonlocal session
            topics = [{"topic": name, "partitions": [fetched_partition()]} for name in ("open", "secret")]
            answer = client.call(
                "Fetch",
                12,
                max_wait=0,
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=0,
                session_id=session,
                session_epoch=epoch,
                topics=[] if epoch else topics,
                forgotten_topics_data=[],
                rack_id="",
            )
            session = answer.session_id
            return {topic.topic: code(topic.partitions[0].error_code) for topic in answer.responses}

        assert errors(0) == {"open": 0, "secret": 0}
        hidden.add("secret")
        assert errors(1)["secret"] == TopicAuthorizationError.code
        hidden.clear()
        assert errors(2)["secret"] == 0
        hidden.add("nosuch")
        assert code(fetch(client, "nosuch", 0).error_code) == TopicAuthorizationError.code


def fetched_partition() -> dict[str, int]:
    return {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
