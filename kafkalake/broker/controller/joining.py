"""The first version of a node that becomes the controller when it joins: it registers itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from kafkalake.broker.controller.controller import Decision
from kafkalake.broker.controller.protocol import EarlierRun
from kafkalake.broker.partitions.replicas import ReplicaId
from kafkalake.cluster.controller_election import claim
from kafkalake.cluster.election import RulesOf
from kafkalake.cluster.image import BrokerRegistration, ClusterImage, ControllerRegistration, decide_together
from kafkalake.cluster.leader_epochs import raise_leader_epochs
from kafkalake.cluster.registration import (
    register_controller,
    replace_incarnation,
    report_offline_logs,
    unfence_broker,
)
from kafkalake.errors import KafkaError
from kafkalake.storage.log import Log


class TopicsRead(NamedTuple):
    """The table of topics, as a controller needs it that does not follow an image yet.

    bring_together: makes of an image one with exactly those topics. rules: of elections, of these topics.
    are_in: returns whether an image has exactly these topics, with all partitions.
    """

    bring_together: Decision
    rules: RulesOf
    are_in: Callable[[ClusterImage], bool]


def with_member(
    image: ClusterImage,
    here: BrokerRegistration,
    topics: TopicsRead,
    logs: Mapping[ReplicaId, Log | KafkaError],
    earlier: EarlierRun,
) -> ClusterImage:
    """Return the next version, with this broker as the controller, registered, and leading what it has the logs of if it is alone.

    It holds the lease of its id, so an earlier incarnation has ended, whether or not it was fenced. Where there are other nodes
    it stays fenced: they name to clients who leads, and it does not listen yet.
    """
    broker_id = here.broker_id
    offline = {key for key, log in logs.items() if isinstance(log, KafkaError)}
    least_epochs = {key: log.leader_epoch + 1 for key, log in logs.items() if isinstance(log, Log)}

    def epoch(now: ClusterImage) -> int:
        """Return that of the version, or an earlier one if a controller has registered this incarnation before it ended."""
        return now.brokers[broker_id].epoch

    def unfence(now: ClusterImage) -> ClusterImage:
        return unfence_broker(now, broker_id, epoch(now), topics.rules) if now.nodes == {broker_id} else now

    return decide_together(
        image,
        topics.bring_together,
        partial(claim, broker_id=broker_id),
        partial(
            replace_incarnation, broker=here, rules=topics.rules, previous_epoch=earlier.epoch, is_cut=earlier.is_cut
        ),
        unfence,
        lambda now: report_offline_logs(now, broker_id, epoch(now), offline, topics.rules),
        partial(raise_leader_epochs, broker_id=broker_id, least=least_epochs),
    )


def as_controller(here: BrokerRegistration) -> ControllerRegistration:
    """Return the registration of a node that is a controller only."""
    return ControllerRegistration(here.broker_id, here.incarnation_id, here.endpoints)


def with_controller(image: ClusterImage, here: BrokerRegistration, topics: TopicsRead) -> ClusterImage:
    """Return the next version, with this node as the controller, and no broker. Raise as `register_controller`."""
    return decide_together(
        image,
        topics.bring_together,
        partial(claim, broker_id=here.broker_id),
        partial(register_controller, node=as_controller(here)),
    )
