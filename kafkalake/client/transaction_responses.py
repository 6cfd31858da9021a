"""DescribeTransactions' response as brokers send it: a transactional id without a transaction has the start time -1.

kio 0.6.5 requires the field to be a valid time and refuses -1, so the two classes are refined here. No
`from __future__ import annotations`: kio inspects the types of fields, not their text.
"""

from dataclasses import dataclass, field

from kio.schema.describe_transactions.v0 import response as kio_response
from kio.static.primitive import TZAware


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState(kio_response.TransactionState):
    """kio's class, with an optional start time."""

    transaction_start_time: TZAware | None = field(metadata={"kafka_type": "datetime_i64"})  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse(kio_response.DescribeTransactionsResponse):
    """kio's class, with these states."""

    transaction_states: tuple[TransactionState, ...]
