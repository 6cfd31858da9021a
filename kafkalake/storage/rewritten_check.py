"""Whether a rewritten segment that Delta names can be read: its file is whole, and covers the offsets that Delta says."""

from __future__ import annotations

import errno
import logging

from kafkalake.errors import CorruptSegmentError
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.segment import FIRST_MESSAGE, Segment
from kafkalake.storage.segment_reader import SegmentReader

logger = logging.getLogger(__name__)
_LACKS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def check_rewritten(segment: Segment, named: RewrittenSegment) -> None:
    """Check that the file of a rewritten segment is whole and covers exactly its offset range in Delta.

    Raise `CorruptSegmentError` if not, `OSError` if the file is missing or unreadable.
    """
    end = segment.end()
    if not segment.whole:
        raise CorruptSegmentError(segment.path, end, "it has no footer: it was not written to its end")
    first = segment.read(FIRST_MESSAGE, 1, 1 << 62, 0)
    if first is None or first.messages.base_offset != named.base_offset:
        raise CorruptSegmentError(segment.path, FIRST_MESSAGE, f"it does not begin with offset {named.base_offset}")
    next_offset = -1
    for messages in SegmentReader(segment).messages(named.next_offset - 1, columns=0):
        next_offset = messages.next_offset
    if next_offset != named.next_offset:
        raise CorruptSegmentError(segment.path, end, f"it does not end before offset {named.next_offset}")


def is_whole(directory: str, new: RewrittenSegment, open_files: OpenFiles) -> bool:
    """Return whether a rewritten segment named in Delta is whole and covers its range. Log an error if not.

    Raise `OSError` for lack of descriptors or memory, which says nothing about the file.
    """
    segment = Segment(directory, new.base_offset, open_files, new.generation)
    try:
        check_rewritten(segment, new)
    except (OSError, CorruptSegmentError) as error:
        if isinstance(error, OSError) and error.errno in _LACKS:
            raise
        logger.error("a rewritten segment that Delta names is refused, the old ones stay: error=%s", error)
        return False
    finally:
        segment.forget()
    return True


def is_usable(directory: str, new: RewrittenSegment, open_files: OpenFiles) -> bool:
    """Return whether a rewritten segment `is_whole`. Not without descriptors or memory: it is adopted later."""
    try:
        return is_whole(directory, new, open_files)
    except OSError as error:
        logger.warning("a rewritten segment is not used yet: directory=%s error=%s", directory, error)
        return False
