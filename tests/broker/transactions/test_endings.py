"""EndTxn of the next transaction, while the markers of the one before are being written."""

from __future__ import annotations

import pytest

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.transactions.ending import EPOCH_LAST, EndRequest, check_end, complete, prepare
from kafkalake.broker.transactions.records import TransactionRecord
from kafkalake.broker.transactions.states import State
from kafkalake.errors import ConcurrentTransactionsError, ProducerFencedError


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("then", [True, False])
@pytest.mark.parametrize("epoch", [0, EPOCH_LAST])
def test_a_producer_that_has_the_next_epoch_already_is_not_fenced(first: bool, then: bool, epoch: int) -> None:
    """As in Kafka, whose coordinator is in transition until then. A client may abort what it has begun and sent nothing of."""
    ongoing = TransactionRecord("t", 7, epoch, 60_000, State.ONGOING)
    prepared = prepare(ongoing, EndRequest(ProducerIdAndEpoch(7, epoch), first, True), 5, lambda: 8)
    after = complete(prepared, 5)
    request = EndRequest(ProducerIdAndEpoch(after.producer_id, after.epoch), then, True)
    with pytest.raises(ConcurrentTransactionsError):
        check_end(prepared, request, step_under_way=False)
    if not then:
        assert check_end(after, request, step_under_way=False), "an empty transaction is aborted"
    with pytest.raises(ProducerFencedError):
        check_end(prepared, EndRequest(ProducerIdAndEpoch(7, epoch - 1), then, True), step_under_way=False)
