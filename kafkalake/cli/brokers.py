"""`kafkalake brokers`: the brokers of a cluster: list, describe, unregister; what they lead and replicate: elect, reassign."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kafkalake.cli import reassign
from kafkalake.cli.elect import EXAMPLES, elect
from kafkalake.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, Json, connect
from kafkalake.cli.output import Failure, on_terminal, table, write_json, write_line
from kafkalake.errors import KafkaLakeError

if TYPE_CHECKING:
    from kafkalake.client.administration.blocking import Admin
    from kafkalake.client.administration.brokers import ClusterDescription
    from kafkalake.client.cluster import BrokerNode

app = typer.Typer(
    no_args_is_help=True, help="List and describe the brokers of a cluster, and what they replicate and lead."
)
app.add_typer(reassign.app, name="reassign")
app.command("elect", epilog=EXAMPLES)(elect)


@app.command("list")
def list_brokers(bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER, json: Json = False) -> None:
    """List the brokers of the cluster, which of them are fenced, and which is the controller."""

    with connect(bootstrap_server) as admin:
        found = admin.describe_cluster()
        controller_id = _controller_id(admin, found)
    if json:
        write_json(
            {
                "clusterId": found.cluster_id,
                "controllerId": controller_id,
                "brokers": [_node(node) for node in found.brokers],
            }
        )
        return
    rows = [
        (
            node.broker_id,
            node.host,
            node.port,
            node.rack,
            _state(node),
            "yes" if node.broker_id == controller_id else "",
        )
        for node in found.brokers
    ]
    columns = ["Id", "Host", "Port", "Rack", "State", "Controller"]
    if on_terminal():
        table(f"Cluster {found.cluster_id}", columns, rows, right=["Id", "Port"])
        return
    for row in [tuple(columns), *rows]:
        write_line("\t".join("" if cell is None else str(cell) for cell in row))


@app.command()
def describe(
    broker_ids: Annotated[
        list[int] | None, typer.Argument(metavar="ID", help="Ids of brokers; none: all.", show_default=False)
    ] = None,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Show settings that have their default value too.")
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Describe brokers: addresses, the partitions that they have, lead and lag behind in, settings."""

    with connect(bootstrap_server) as admin:
        found = admin.describe_cluster()
        by_id = {node.broker_id: node for node in found.brokers}
        if unknown := [each for each in broker_ids or () if each not in by_id]:
            raise Failure(f"no broker {unknown[0]} is registered; there are {', '.join(map(str, by_id)) or 'none'}")
        counts, controller_id = _partitions(admin), _controller_id(admin, found)
        described = [
            _Described(
                by_id[each],
                is_controller=each == controller_id,
                leaders=counts.leading[each],
                replicas=counts.having[each],
                out_of_sync=counts.behind[each],
                configs={} if by_id[each].is_fenced else _configs(admin, each, with_defaults=all_configs),
            )
            for each in dict.fromkeys(broker_ids or by_id)
        ]
    if json:
        write_json([each.document() for each in described])
        return
    for each in described:
        write_line(each.line())


@app.command(epilog="Example:  [cyan]kafkalake brokers unregister 2[/cyan]")
def unregister(
    broker_id: Annotated[int, typer.Argument(metavar="ID", min=0, help="Id of the broker.", show_default=False)],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Unregister a broker that has ended and does not come back."""

    with connect(bootstrap_server) as admin:
        admin.unregister_broker(broker_id)
    if json:
        write_json({"unregistered": broker_id})
    else:
        write_line(f"Broker {broker_id} is no longer registered.")


@dataclass(frozen=True)
class _Described:
    """A broker, and how many partitions it leads, has replicas of, and has replicas of that are not in the ISR."""

    node: BrokerNode
    is_controller: bool
    leaders: int
    replicas: int
    out_of_sync: int
    configs: dict[str, str | None]

    def document(self) -> dict[str, object]:
        """Return the broker for JSON."""
        return {
            **_node(self.node),
            "controller": self.is_controller,
            "leaders": self.leaders,
            "replicas": self.replicas,
            "outOfSync": self.out_of_sync,
            "configs": self.configs,
        }

    def line(self) -> str:
        """Return the broker as one line, in the manner of `kafka-topics --describe`."""
        host = f"[{self.node.host}]" if ":" in self.node.host else self.node.host
        return "\t".join(
            [
                f"Broker: {self.node.broker_id}",
                f"Address: {host}:{self.node.port}",
                f"Rack: {self.node.rack or ''}",
                f"State: {_state(self.node)}",
                f"Controller: {'yes' if self.is_controller else 'no'}",
                f"Leaders: {self.leaders}",
                f"Replicas: {self.replicas}",
                f"OutOfSync: {self.out_of_sync}",
                f"Configs: {','.join(f'{name}={value}' for name, value in self.configs.items())}",
            ]
        )


class _Counts(NamedTuple):
    leading: Counter[int]
    having: Counter[int]
    behind: Counter[int]


def _node(node: BrokerNode) -> dict[str, object]:
    return {"id": node.broker_id, "host": node.host, "port": node.port, "rack": node.rack, "fenced": node.is_fenced}


def _state(node: BrokerNode) -> str:
    return "fenced" if node.is_fenced else "unfenced"


def _controller_id(admin: Admin, found: ClusterDescription) -> int:
    """Return the elected controller, or what `found` names: any broker that takes requests for it, where there is no quorum."""
    try:
        return admin.describe_quorum().leader_id
    except KafkaLakeError:
        return found.controller_id


def _partitions(admin: Admin) -> _Counts:
    counts = _Counts(Counter(), Counter(), Counter())
    for topic in admin.list_topics():
        for partition in topic.partitions:
            counts.leading[partition.leader] += 1
            counts.having.update(partition.replicas)
            counts.behind.update(set(partition.replicas) - set(partition.isr))
    return counts


def _configs(admin: Admin, broker_id: int, *, with_defaults: bool) -> dict[str, str | None]:
    from kafkalake.client.administration.configs import BROKER_RESOURCE

    entries = admin.describe_configs(BROKER_RESOURCE, [str(broker_id)])[str(broker_id)]
    return {each.name: each.value for each in entries if with_defaults or not each.is_default}
