"""Batches log changes (moved offsets, sealed and removed segments) into few Delta commits. Pure: no disk, thread or wait.

The broker's event loop reports changes (`moved`, `dropped`, `sealed`, `removed`: each a set or dict operation) and checks `due`.
When a publish is due, `take` returns one `PublishedState`. The broker commits it on an executor with `PublishedTables.publish` and
reports `succeeded` or `failed`. One publish is in progress at a time.

    if publisher.due(clock.monotonic_ms()):
        state = publisher.take(clock.monotonic_ms(), clock.now_ms())
        try:
            await loop.run_in_executor(executor, store.publish, state)
        except Exception as error:
            publisher.failed(clock.monotonic_ms(), error)
        else:
            publisher.succeeded(clock.monotonic_ms())

Moved offsets are due `interval_ms` after the last publish began. A sealed or removed segment is due at once, but no sooner than
`ROLL_GAP_MS` after the last publish began, so that thousands of rolls make one commit. Neither is due before `COST_SHARE` times
the duration of the last commit has passed since its end (at most `COST_PAUSE_MS_MAX`): a table with a long log commits slowly and
is then written less often. Without changes nothing is due. After a failure all changes are kept and due again after a backoff
that doubles up to `BACKOFF_MS_MAX`.

Times called `now_ms` are monotonic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kafkalake.metadata.store import PublishedState
from kafkalake.metadata.tables.schemas import PartitionRow, SegmentKey, SegmentRow
from kafkalake.topic_partition import TopicPartition

ROLL_GAP_MS = 100
COST_SHARE = 20
COST_PAUSE_MS_MAX = 10_000
BACKOFF_MS_MIN = 250
BACKOFF_MS_MAX = 30_000

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _UnderWay:
    state: PublishedState
    started_ms: int


def application_id(broker_id: int) -> str:
    """Return Delta's `txn` application id of a broker's publishes."""
    return f"kafkalake-broker-{broker_id}"


class PublishSchedule:
    """The unpublished changes of the partitions led by one broker.

    `describe` returns a partition's current state, or None if it is no longer led here. `take` calls it once per moved partition,
    on the caller's thread. `last_version` is `PublishedTables.last_published_version(application_id(leader))`.
    """

    def __init__(
        self,
        leader: int,
        describe: Callable[[TopicPartition], PartitionRow | None],
        *,
        last_version: int | None,
        interval_ms: int = 1_000,
    ) -> None:
        self._leader = leader
        self._describe = describe
        self._interval_ms = interval_ms
        self._next_version = 0 if last_version is None else last_version + 1
        self._rows: dict[TopicPartition, PartitionRow] = {}
        self._moved: set[TopicPartition] = set()
        self._dropped = False
        self._sealed: dict[SegmentKey, SegmentRow] = {}
        self._removed: dict[SegmentKey, None] = {}
        self._under_way: _UnderWay | None = None
        self._last_started_ms: int | None = None
        self._not_before_ms = 0
        self._failures = 0

    # Changes reported by the broker.

    def moved(self, partition: TopicPartition) -> None:
        """Note changed offsets, epoch or replicas of a partition, or a new partition."""
        self._moved.add(partition)

    def dropped(self, partition: TopicPartition) -> None:
        """Note that a partition is no longer led here (its topic was deleted, say). Its segments are `removed` separately."""
        self._moved.discard(partition)
        if self._rows.pop(partition, None) is not None:
            self._dropped = True

    def keep(self, row: PartitionRow) -> None:
        """Keep publishing Delta's row of an offline partition led here."""
        self._rows[row.topic, row.partition] = row

    def sealed(self, segment: SegmentRow) -> None:
        """Note a sealed segment."""
        self._removed.pop(segment.key, None)
        self._sealed[segment.key] = segment

    def removed(self, key: SegmentKey) -> None:
        """Note that a sealed segment is no longer part of the log."""
        self._sealed.pop(key, None)
        self._removed[key] = None  # even if unpublished: a failed publish may be half committed

    def republish(self) -> None:
        """Publish the rows again after a job changed `segments`, because they must name its new version."""
        self._dropped = True

    # Publishes.

    @property
    def pending(self) -> bool:
        """Return whether there are changes to publish, besides those of a publish in progress."""
        return bool(self._moved or self._dropped or self._sealed or self._removed)

    def due(self, now_ms: int) -> bool:
        """Return whether `take` should be called now."""
        due_ms = self.next_due_ms()
        return due_ms is not None and now_ms >= due_ms

    def next_due_ms(self) -> int | None:
        """Return when the next publish is due without further changes, or None if there are none or one is in progress."""
        if self._under_way is not None or not self.pending:
            return None
        if self._last_started_ms is None:
            return self._not_before_ms
        gap_ms = ROLL_GAP_MS if self._sealed or self._removed or self._dropped else self._interval_ms
        return max(self._last_started_ms + min(gap_ms, self._interval_ms), self._not_before_ms)

    def take(self, now_ms: int, published_at_ms: int) -> PublishedState | None:
        """Return one publish of all pending changes, due or not (shutdown does not wait), or None if nothing changed.

        `published_at_ms` is wall-clock time. No publish may be in progress.
        """
        assert self._under_way is None, "a publish is under way"
        changed = self._describe_moved()
        if not (changed or self._dropped or self._sealed or self._removed):
            return None
        state = PublishedState(
            leader=self._leader,
            partitions=tuple(self._rows.values()),
            sealed=tuple(self._sealed.values()),
            removed=tuple(self._removed),
            app_id=application_id(self._leader),
            version=self._next_version,
            published_at_ms=published_at_ms,
        )
        self._next_version += 1
        self._dropped = False
        self._sealed = {}
        self._removed = {}
        self._under_way = _UnderWay(state, now_ms)
        self._last_started_ms = now_ms
        return state

    def succeeded(self, now_ms: int) -> None:
        """Note that the publish in progress was committed."""
        assert self._under_way is not None
        cost_ms = now_ms - self._under_way.started_ms
        self._not_before_ms = now_ms + min(COST_SHARE * cost_ms, COST_PAUSE_MS_MAX)
        self._under_way = None
        if self._failures:
            logger.info("publishing to Delta works again after %d failures", self._failures)
        self._failures = 0

    def failed(self, now_ms: int, error: BaseException) -> None:
        """Note that the publish in progress failed, perhaps partly committed. All its changes become pending again."""
        assert self._under_way is not None
        state = self._under_way.state
        self._under_way = None
        self._put_back(state)
        backoff_ms = min(BACKOFF_MS_MIN << min(self._failures, 20), BACKOFF_MS_MAX)
        self._failures += 1
        self._not_before_ms = now_ms + backoff_ms
        logger.warning(
            "publishing to Delta failed (%d in a row), next try in %d ms: %s", self._failures, backoff_ms, error
        )

    def _describe_moved(self) -> bool:
        """Update the rows of moved partitions and return whether any changed."""
        changed = False
        for partition in self._moved:
            row = self._describe(partition)
            changed |= self._rows.get(partition) != row
            if row is None:
                self._rows.pop(partition, None)
            else:
                self._rows[partition] = row
        self._moved.clear()
        return changed

    def _put_back(self, state: PublishedState) -> None:
        """Merge failed changes before later ones. A segment removed meanwhile stays removed."""
        since_sealed, since_removed = self._sealed, self._removed
        self._sealed = {row.key: row for row in state.sealed if row.key not in since_removed} | since_sealed
        self._removed = dict.fromkeys(key for key in state.removed if key not in since_sealed) | since_removed
        self._dropped = True  # the rows differ from the published ones even if no partition moves again


@dataclass(frozen=True, slots=True)
class Repair:
    """The differences of `segments` from the disk: `missing` (sealed on disk, not published) and `gone` (published, no file)."""

    missing: tuple[SegmentRow, ...]
    gone: tuple[SegmentKey, ...]


def reconcile(sealed_on_disk: Iterable[SegmentRow], published: Iterable[SegmentRow]) -> Repair:
    """Compare a broker's sealed segments with Delta after a kill between log and publish, and return the differences.

    `published` must be this broker's only. A segment whose content differs from the published one counts as
    missing, and publishing it replaces the row. A segment on disk that begins in the range of a published newer generation is not
    missing: compaction, which swaps whole segments, has replaced it, and it will be deleted. It is missing if the log has refused
    that generation.
    """
    on_disk = {row.key: row for row in sealed_on_disk}
    in_delta = {row.key: row for row in published}
    newer: dict[TopicPartition, list[SegmentRow]] = {}
    for row in in_delta.values():
        if row.generation > 0 and row.key in on_disk:
            newer.setdefault((row.topic_id, row.partition), []).append(row)
    missing = [
        row
        for key, row in on_disk.items()
        if not (key in in_delta and in_delta[key].same_content(row)) and not _is_covered(row, newer)
    ]
    return Repair(tuple(missing), tuple(key for key in in_delta if key not in on_disk))


def _is_covered(row: SegmentRow, newer: dict[TopicPartition, list[SegmentRow]]) -> bool:
    return any(
        other.generation > row.generation and other.base_offset <= row.base_offset < other.next_offset
        for other in newer.get((row.topic_id, row.partition), ())
    )
