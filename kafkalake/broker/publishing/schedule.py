"""The publisher: collects what moved in the logs and turns it into few Delta commits. Pure: no disk, no thread, no wait.

The broker's event loop tells it what happened (`moved`, `dropped`, `sealed`, `removed`: each a set or dict operation)
and asks `due`. When it is, `take` gives one `PublishedState`, which the broker commits on an executor with
`MetadataStore.publish` and then reports: `succeeded` or `failed`. One publish is under way at a time.

    if publisher.due(clock.monotonic_ms()):
        state = publisher.take(clock.monotonic_ms(), clock.now_ms())
        try:
            await loop.run_in_executor(executor, store.publish, state)
        except Exception as error:
            publisher.failed(clock.monotonic_ms(), error)
        else:
            publisher.succeeded(clock.monotonic_ms())

When is it due? Positions that moved: `interval_ms` after the last publish began. A sealed or removed segment: at once,
but `ROLL_GAP_MS` after the last one, so that thousands of rolls make one commit. Neither sooner than `COST_SHARE` times
what the last commit took after it ended: a table with a long log commits slowly, and is then asked less often. Nothing
moved: never. After a failure everything stays, and it is due again after a backoff that doubles up to `BACKOFF_MS_MAX`.

Times called `now_ms` are of the monotonic clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kafkalake.metadata.store import PublishedState
from kafkalake.metadata.tables.schemas import PartitionRow, SegmentKey, SegmentRow, TopicPartition

ROLL_GAP_MS = 100
COST_SHARE = 20
COST_PAUSE_MS_MAX = 10_000
BACKOFF_MS_MIN = 250
BACKOFF_MS_MAX = 30_000

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _UnderWay:
    state: PublishedState
    started_ms: int


def application_id(broker_id: int) -> str:
    """Delta's `txn` application id of a broker's publishes."""
    return f"kafkalake-broker-{broker_id}"


class Publisher:
    """Collects changes of the partitions that one broker leads.

    `describe` gives a partition's state now, or None when it is led here no longer (called in `take`, once per partition
    that moved, on the caller's thread).
    `last_version` is `MetadataStore.last_published_version(application_id(leader))`.
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

    # What the broker tells.

    def moved(self, partition: TopicPartition) -> None:
        """A position, the epoch or the replicas of a partition changed, or the partition is new here."""
        self._moved.add(partition)

    def dropped(self, partition: TopicPartition) -> None:
        """The partition is led here no longer (its topic was deleted, say). Its segments are `removed` separately."""
        self._moved.discard(partition)
        if self._rows.pop(partition, None) is not None:
            self._dropped = True

    def keep(self, row: PartitionRow) -> None:
        """A partition that is led here cannot be looked at: what Delta says of it goes on being published."""
        self._rows[TopicPartition(row.topic, row.partition)] = row

    def sealed(self, segment: SegmentRow) -> None:
        """A segment was sealed."""
        self._removed.pop(segment.key, None)
        self._sealed[segment.key] = segment

    def removed(self, key: SegmentKey) -> None:
        """A sealed segment is no longer part of the log."""
        self._sealed.pop(key, None)
        self._removed[key] = None  # also when it was not published yet: a publish that failed may have done half

    def republish(self) -> None:
        """A job has changed `segments`: the rows have to name its new version, whether or not any moves."""
        self._dropped = True

    # What the broker asks.

    @property
    def pending(self) -> bool:
        """Whether anything waits to be published (what is under way is not waiting)."""
        return bool(self._moved or self._dropped or self._sealed or self._removed)

    def due(self, now_ms: int) -> bool:
        """Whether `take` should be called now."""
        due_ms = self.next_due_ms()
        return due_ms is not None and now_ms >= due_ms

    def next_due_ms(self) -> int | None:
        """When the next publish is due, if nothing else happens until then; None: nothing waits, or one is under way."""
        if self._under_way is not None or not self.pending:
            return None
        if self._last_started_ms is None:
            return self._not_before_ms
        gap_ms = ROLL_GAP_MS if self._sealed or self._removed or self._dropped else self._interval_ms
        return max(self._last_started_ms + min(gap_ms, self._interval_ms), self._not_before_ms)

    def take(self, now_ms: int, published_at_ms: int) -> PublishedState | None:
        """One publish of all that waits, whether due or not (at shutdown it is not); None when nothing changed.

        `published_at_ms` is the wall clock's time. Raises nothing; asserts that no publish is under way.
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
        """The publish under way is committed."""
        assert self._under_way is not None
        cost_ms = now_ms - self._under_way.started_ms
        self._not_before_ms = now_ms + min(COST_SHARE * cost_ms, COST_PAUSE_MS_MAX)
        self._under_way = None
        if self._failures:
            _log.info("publishing to Delta works again after %d failures", self._failures)
        self._failures = 0

    def failed(self, now_ms: int, error: BaseException) -> None:
        """The publish under way failed, perhaps after a part of it was committed: all of it waits again."""
        assert self._under_way is not None
        state = self._under_way.state
        self._under_way = None
        self._put_back(state)
        backoff_ms = min(BACKOFF_MS_MIN << min(self._failures, 20), BACKOFF_MS_MAX)
        self._failures += 1
        self._not_before_ms = now_ms + backoff_ms
        _log.warning(
            "publishing to Delta failed (%d in a row), next try in %d ms: %s", self._failures, backoff_ms, error
        )

    def _describe_moved(self) -> bool:
        """Bring the rows up to date; whether any changed."""
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
        """What failed goes before what came since: a segment that was removed meanwhile stays removed."""
        since_sealed, since_removed = self._sealed, self._removed
        self._sealed = {row.key: row for row in state.sealed if row.key not in since_removed} | since_sealed
        self._removed = dict.fromkeys(key for key in state.removed if key not in since_sealed) | since_removed
        self._dropped = True  # the rows differ from what is published, whether or not any partition moves again


@dataclass(frozen=True, slots=True)
class Repair:
    """What `segments` lacks (`missing`: on disk, sealed, not published) and has too much (`gone`: published, no file)."""

    missing: tuple[SegmentRow, ...]
    gone: tuple[SegmentKey, ...]


def reconcile(sealed_on_disk: Iterable[SegmentRow], published: Iterable[SegmentRow]) -> Repair:
    """Compare a broker's sealed segments with what Delta says, after a kill between the log and the publish.

    `published` must be this broker's only (see `published_by`). A segment whose content differs from the published one
    counts as missing: publishing it replaces the row. A segment on disk that begins in the range of a published newer
    generation is not missing: compaction, which swaps whole segments, has replaced it, and it waits to be deleted.
    It is where the log has refused that generation.
    """
    on_disk = {row.key: row for row in sealed_on_disk}
    in_delta = {row.key: row for row in published}
    newer: dict[tuple[str, int], list[SegmentRow]] = {}
    for row in in_delta.values():
        if row.generation > 0 and row.key in on_disk:
            newer.setdefault((row.topic_id, row.partition), []).append(row)
    missing = [
        row
        for key, row in on_disk.items()
        if not (key in in_delta and in_delta[key].same_content(row)) and not _is_covered(row, newer)
    ]
    return Repair(tuple(missing), tuple(key for key in in_delta if key not in on_disk))


def published_by(broker_id: int, segments: Iterable[SegmentRow]) -> list[SegmentRow]:
    """The segments that lie in this broker's log directory."""
    prefix = f"logs/{broker_id}/"
    return [row for row in segments if row.path.startswith(prefix)]


def _is_covered(row: SegmentRow, newer: dict[tuple[str, int], list[SegmentRow]]) -> bool:
    return any(
        other.generation > row.generation and other.base_offset <= row.base_offset < other.next_offset
        for other in newer.get((row.topic_id, row.partition), ())
    )
