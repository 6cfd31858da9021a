"""Puts together what a broker reports and, while it is the controller, publishes."""

from __future__ import annotations

import os
from typing import NamedTuple

from kafkalake.broker.broker import Broker
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.broker.publishing.broker_reports import BrokerReports
from kafkalake.broker.publishing.journal_reports import report_group_offsets, report_transactions
from kafkalake.broker.publishing.lake_publisher import LakePublisher, LakeStore
from kafkalake.broker.publishing.partitions import PartitionReporter
from kafkalake.broker.transactions.fault_points import kill_as_asked
from kafkalake.client.peers import Peers
from kafkalake.run_blocking import RunBlocking
from kafkalake.server.remote_reports import RemoteReports


class Publishing(NamedTuple):
    """The parts of a broker that publish to Delta."""

    reporter: PartitionReporter
    reports: BrokerReports
    publisher: LakePublisher

    def begin(self, scheduler: Scheduler) -> None:
        """Report and publish from now on."""
        self.reporter.begin(scheduler)
        self.publisher.begin(scheduler)


def assemble_publishing(
    broker: Broker,
    reporter: PartitionReporter,
    store: LakeStore,
    peers: Peers,
    on_metadata: RunBlocking,
) -> Publishing:
    """Return the publishing of a broker. `on_metadata` runs a function in a thread for Delta."""
    transactions, reached = broker.transactions, kill_as_asked(os.environ)
    reports = BrokerReports(
        reporter,
        report_group_offsets(broker.groups.journal, broker.clock),
        report_transactions(transactions.journal, broker.clock),
        transactions.waves,
        lambda: transactions.coordinated,
        lambda: broker.cluster,
        broker.clock,
        reached,
    )
    publisher = LakePublisher(
        broker.broker_id,
        reports,
        lambda broker_id: RemoteReports(broker_id, peers, on_metadata),
        lambda: broker.controller.image,
        broker.topics,
        store,
        broker.clock,
        on_metadata,
        broker.config.metadata_publish_interval_ms,
        reached,
    )
    return Publishing(reporter, reports, publisher)
