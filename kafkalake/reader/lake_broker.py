"""Finds the running broker of a lake, for commits of offsets, statements that change topics, and writes; and the lake of brokers,
for queries that name these only.

Brokers are found by their lock files in the lake, whose locks they hold: a copy of a lake has the files without the locks, and the
broker that they name has the original. They are accepted only if they have the lake's cluster id, because another process may use
the port by now.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalake.client.staged_append import DESCRIBE_TIMEOUT_S, ask_once
from kafkalake.errors import BrokerUnavailableError, ConfigurationError, KafkaLakeError, LakeError
from kafkalake.metadata.identity import known_cluster_id
from kafkalake.metadata.lock_file import holders, running_brokers
from kafkalake.metadata.paths import require_lake
from kafkalake.reader.client_settings import SERVERS, parse_servers
from kafkalake.reader.option_names import LAKE
from kafkalake.reader.read_options import LOCATED_NOTE, lake_option

if TYPE_CHECKING:
    from kafkalake.client.administration.blocking import Admin

TIMEOUT_MS = 10_000


def running_addresses(lake: Path) -> list[tuple[str, int]]:
    """Return the addresses (host, port) of the brokers that hold the locks of the lake. Raise `LakeError` if it is no lake."""
    rows = holders(require_lake(lake))
    running = running_brokers(lake, rows, time.time_ns() // 1_000_000)
    return [(row.host, row.port) for row in rows if row.broker_id in running]


@contextmanager
def connect(lake: Path) -> Iterator[Admin]:
    """Yield a connection to a running broker of the lake. Raise `LakeError`, or `BrokerUnavailableError` if there is none."""
    # Imported here: writers need only the addresses, and this takes longer to import than they run.
    from kafkalake.client.administration.blocking import Admin

    wanted = known_cluster_id(lake)
    refused = []
    for host, port in running_addresses(lake) if wanted is not None else []:
        with Admin(
            bootstrap_servers=f"{host}:{port}",
            client_id="kafkalake-spark",
            first_contact_ms=0,
            request_timeout_ms=TIMEOUT_MS,
            default_api_timeout_ms=TIMEOUT_MS,
        ) as admin:
            try:
                found = admin.cluster_id()
            except KafkaLakeError as error:
                refused.append(f"{host}:{port}: {error}")
                continue
            if found == wanted:
                yield admin
                return
            refused.append(f"{host}:{port}: its cluster is {found}, the lake's is {wanted}")
    if refused:
        raise BrokerUnavailableError(f"no broker of {lake} answers ({'; '.join(refused)})")
    raise BrokerUnavailableError(f"no broker of {lake} is running. Start one: kafkalake broker start --lake {lake}")


def located(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the option `lake`, found by asking the brokers if they name only `kafka.bootstrap.servers`.

    Raise `ConfigurationError` if the brokers are named wrongly, if the lake is not on this machine, or not that of the brokers, and
    `BrokerUnavailableError` if it is not named and no broker answers. A lake that is named is read without brokers.
    """
    named = {name.lower(): value for name, value in given.items()}
    servers = named.get(SERVERS)
    if servers is None or LOCATED_NOTE in named:
        return dict(given)
    parse_servers(servers)  # what is malformed is refused, also where no broker need answer
    if LAKE in named:
        _check_brokers(Path(lake_option(named)), servers)
        return dict(given)
    return {**given, LAKE: str(_lake_of(servers))}


def _check_brokers(lake: Path, servers: str) -> None:
    try:
        found = _ask(servers)["cluster_id"]
    except KafkaLakeError:
        return
    wanted = known_cluster_id(require_lake(lake.absolute()))
    if found != wanted:
        raise ConfigurationError(
            f"{SERVERS} {servers} and the lake {lake} do not belong together: the brokers' cluster is {found}, the lake's is "
            f"{wanted}; give one of them"
        )


def _lake_of(servers: str) -> Path:
    try:
        answer = _ask(servers)
    except BrokerUnavailableError as error:
        raise BrokerUnavailableError(
            f"no kafkalake broker answers that could say where the lake is ({error}); "
            'start it, or name the lake: option("lake", "/path/to/lake")'
        ) from error
    if answer["lake"] is None:
        raise ConfigurationError(
            f'the broker at {servers} may not say where its lake is: use option("lake", "/path/to/lake")'
        )
    lake = Path(answer["lake"])
    try:
        is_here = known_cluster_id(require_lake(lake)) == answer["cluster_id"]
    except LakeError:
        is_here = False
    if not is_here:
        raise ConfigurationError(
            f"the lake of the broker at {servers} is {lake} on the broker's machine, and not there on this one: "
            'mount it, and name its path on this machine by option("lake", ...)'
        )
    return lake


def _ask(servers: str) -> dict[str, str | None]:
    """Return `cluster_id` and `lake` of the first broker that answers. Raise `BrokerUnavailableError` if none does."""
    answer = ask_once(parse_servers(servers), {"ask": "describe", "topics": []}, DESCRIBE_TIMEOUT_S)
    if "cluster_id" not in answer:
        raise BrokerUnavailableError(f"the broker at {servers} is of an older version")
    return answer
