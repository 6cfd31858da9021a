"""Messages of ReportChanges, kafkalake's own: the controller asks a broker for what is to be published to the lake's tables."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalake.buffers import Buffer
from kafkalake.wire.messages.message import Message, Response


class ReportedTopic(Message):
    name: str = ""
    partitions: Sequence[int] = ()


class ReportChangesRequest(Message):
    controller_epoch: int = -1
    step: int = 0
    kind: int = 0
    part: int = 0
    published: Sequence[int] = ()
    kept: Sequence[ReportedTopic] = ()
    knows_hidden: bool = False
    hidden_partitions: Sequence[int] = ()
    hidden_positions: Sequence[int] = ()


class ReportChangesResponse(Response):
    error_code: int = 0
    changed: Sequence[int] = ()
    is_marked: bool = False
    was_held: bool = False
    is_quiet: bool = False
    is_swapped: bool = False
    coordinated: Sequence[int] = ()
    transaction_partitions: Sequence[int] = ()
    transaction_positions: Sequence[int] = ()
    range_topics: Sequence[str] = ()
    range_numbers: Sequence[int] = ()
    range_offsets: Sequence[int] = ()
    marked: Sequence[ReportedTopic] = ()
    sequence: int = -1
    image_version: int = 0
    parts: int = 1
    rows: Sequence[Buffer] = ()
    journal_partitions: Sequence[int] = ()
    journal_positions: Sequence[int] = ()
