"""DescribeTransactions' response as brokers send it: a transactional id without a transaction has the start time -1.

kio 0.6.5 takes the field for a time that is always there and refuses -1, so the two classes are refined here. No
`from __future__ import annotations`: kio looks at the types of fields, not at their text.
"""

from dataclasses import dataclass, field

from kio.schema.describe_transactions.v0 import response as kio_response
from kio.static.primitive import TZAware


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState(kio_response.TransactionState):
    """As kio's; the start time is None where there is none."""

    transaction_start_time: TZAware | None = field(metadata={"kafka_type": "datetime_i64"})  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse(kio_response.DescribeTransactionsResponse):
    """As kio's, with these states."""

    transaction_states: tuple[TransactionState, ...]
