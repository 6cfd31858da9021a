"""Times that options name, as Spark takes them: one without a zone is a time of the session's zone.

Spark's own readers, Delta and Iceberg do so, and a time that was meant as Tokyo's and taken as UTC's reads another snapshot
without a word. Of a time that the zone's clocks show twice the first is meant; one that they skip is moved on by what they skip,
as Java does it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kafkalake.errors import ConfigurationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?")


def parse_time(option: str, text: str, zone: str | None) -> int:
    """Milliseconds since 1970 of a number of them, or of an ISO 8601 time; in `zone` where it names none.

    `zone` is one of Spark's names; None: the session's is not known. Raises `ConfigurationError`.
    """
    try:
        if re.fullmatch(r"-?\d{5,}", text.strip()):
            return int(text)
        parsed = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigurationError(
            f"{option} is {text!r}: give milliseconds since 1970, or a time such as 2024-05-01T12:00:00Z"
        ) from None
    if parsed.tzinfo is None:
        if zone is None:
            raise ConfigurationError(
                f"{option} is {text!r}, a time without a zone, and Spark does not say which zone the session has where its driver "
                f"lacks kafkalake-spark.jar: name the zone, as in {text.strip()}Z"
            )
        parsed = parsed.replace(tzinfo=zone_named(zone))
    return (parsed - _EPOCH) // timedelta(milliseconds=1)


def zone_named(name: str) -> tzinfo:
    """The zone that `spark.sql.session.timeZone` names: a region, or an offset such as +09:00. Raises `ConfigurationError`."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    found = _OFFSET.fullmatch(name)
    if found is not None:
        sign, hours, minutes, seconds = found[1], *(int(part or 0) for part in found.groups()[1:])
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigurationError(
            f"the session's time zone {name!r} is not known to Python on this machine: name a zone in the time"
        ) from None
