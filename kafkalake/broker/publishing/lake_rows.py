"""The rows of `partitions` as the controller has published them, and what reports make of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from kafkalake.broker.publishing.reports import PartitionReport
from kafkalake.cluster.image import NO_LEADER
from kafkalake.metadata.changes import newest_row
from kafkalake.metadata.store import PublishedPartitions, PublishedState
from kafkalake.metadata.tables.schemas import PartitionRow
from kafkalake.run_blocking import Steps
from kafkalake.topic_partition import PartitionId, TopicPartition

APPLICATION_ID = "kafkalake-controller"
"""Delta's `txn` application id of publishes of `partitions` and `segments`."""


class LakeRows:
    """The published rows of one controller epoch.

    A publish has the version (controller epoch, number), so that one of an earlier controller is refused once a later one has
    published. It continues the rows of the last one, or is refused: those of two that do not know each other would show a part
    of a transaction. After one that failed, which may be committed, the rows are read again.
    """

    def __init__(self, controller_epoch: int, published: PublishedPartitions) -> None:
        self._version = controller_epoch << 32
        self._claims = True
        self.take(published)

    def take(self, published: PublishedPartitions) -> None:
        """Go on from the rows of the table."""
        unstamped = (replace(row, published_at_ms=-1, segments_version=-1) for row in published.rows)
        self._rows: dict[PartitionId[str], PartitionRow] = {(row.topic_id, row.partition): row for row in unstamped}
        self._follows = published.version
        self._is_known = True
        self._prepared: dict[PartitionId[str], PartitionRow] = {}
        """The rows once the publish under way is committed."""

    @property
    def is_known(self) -> bool:
        """Return whether the rows are those of the table, as far as this controller has changed it."""
        return self._is_known

    def find(self, topic_id: str, partition: int) -> PartitionRow | None:
        """Return the published row of a partition."""
        return self._rows.get((topic_id, partition))

    def prepare(
        self,
        reports: Iterable[PartitionReport],
        topic_ids: Collection[str],
        leader_of: Callable[[str, int], int],
        stable_max: Mapping[TopicPartition, int],
        now_ms: int,
    ) -> Steps[PublishedState | None]:
        """Return what the reports change, None if that is nothing. It yields after each row.

        `topic_ids`: those of the cluster's topics; the rows of others go. `leader_of` returns the leader of a partition of a topic
        id by the newest image: what another broker reports of it is late, and dropped. `stable_max`: see `newest_row`.
        """
        rows = {key: row for key, row in self._rows.items() if key[0] in topic_ids}
        leaders = {row.leader for key, row in self._rows.items() if key not in rows}

        def is_late(key: PartitionId[str], broker_id: int) -> bool:
            return key[0] in topic_ids and leader_of(*key) not in (broker_id, NO_LEADER)

        sealed, removed = [], []
        for report in reports:
            broker_id = report.broker_id
            for reported in report.rows:
                key = (reported.topic_id, reported.partition)
                if key[0] not in topic_ids or is_late(key, broker_id):
                    continue
                known = rows.get(key)
                row = newest_row(known, reported, stable_max.get((reported.topic, reported.partition)))
                if row != known:
                    rows[key] = row
                    leaders |= {row.leader} if known is None else {row.leader, known.leader}
                yield
            for segment in report.sealed:
                if segment.topic_id in topic_ids and not is_late((segment.topic_id, segment.partition), broker_id):
                    sealed.append(segment)
            removed += [each for each in report.removed if not is_late((each.topic_id, each.partition), broker_id)]
            if report.is_swapped:
                leaders.add(broker_id)
        for changed in (*(each.key for each in sealed), *removed):  # their rows name the new version of `segments`
            if (found := rows.get((changed.topic_id, changed.partition))) is not None:
                leaders.add(found.leader)
        if not (leaders or sealed or removed):
            return None
        self._version += 1
        self._is_known = False
        self._prepared = rows
        return PublishedState(
            leaders=tuple(sorted(leaders)),
            partitions=[row for row in rows.values() if row.leader in leaders],
            sealed=sealed,
            removed=removed,
            app_id=APPLICATION_ID,
            version=self._version,
            published_at_ms=now_ms,
            claims=self._claims and bool(sealed or removed),
            follows=self._follows,
        )

    def committed(self, state: PublishedState) -> None:
        """Note that a publish is committed."""
        assert state.version == self._version, "the last publish that was prepared"
        self._rows, self._prepared = self._prepared, {}
        self._follows = state.version
        self._is_known = True
        self._claims = self._claims and not state.claims
