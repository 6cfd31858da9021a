"""What brokers say of the records that wait to be delivered later, by DescribeDelayed, of kafkalake's own."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalake.client.administration.answers import raise_error
from kafkalake.client.administration.brokers import ask_all_brokers
from kafkalake.client.administration.call import AdminCall
from kafkalake.client.network.script import Script
from kafkalake.client.requests import DESCRIBE_DELAYED
from kafkalake.wire.messages.delayed import DescribeDelayedRequest, DescribeDelayedResponse


@dataclass(frozen=True, slots=True)
class DelayedMetrics:
    """The records of one broker's journal partitions: those that wait, of these those that are due, and when the next is, ms.

    loading: partitions that are not loaded yet, whose records are not counted. handed_over, dead_letters: since the broker's start.
    recent: those of the last minute, of which the lateness is.
    """

    broker_id: int
    partitions: int
    loading: int
    waiting: int
    overdue: int
    next_due_ms: int | None
    handed_over: int
    dead_letters: int
    recent: int
    lateness_ms_p50: int
    lateness_ms_p99: int
    lateness_ms_max: int


def delayed_metrics(call: AdminCall) -> Script[list[DelayedMetrics]]:
    """Return the metrics of each broker. Raise `UnsupportedVersionError` if one is no kafkalake broker of this release."""
    answers = yield from ask_all_brokers(
        call,
        DESCRIBE_DELAYED,
        DescribeDelayedRequest(),
        lambda answer: raise_error(answer.error_code, "the metrics of delayed delivery"),
    )
    return [_metrics(broker_id, answer) for broker_id, answer in sorted(answers.items())]


def _metrics(broker_id: int, answer: DescribeDelayedResponse) -> DelayedMetrics:
    times = [each.next_due for each in answer.partitions if each.next_due >= 0]
    return DelayedMetrics(
        broker_id,
        partitions=len(answer.partitions),
        loading=sum(not each.is_loaded for each in answer.partitions),
        waiting=sum(each.waiting for each in answer.partitions),
        overdue=sum(each.overdue for each in answer.partitions),
        next_due_ms=min(times, default=None),
        handed_over=answer.handed_over,
        dead_letters=answer.dead_letters,
        recent=answer.recent,
        lateness_ms_p50=answer.lateness_p50,
        lateness_ms_p99=answer.lateness_p99,
        lateness_ms_max=answer.lateness_max,
    )
