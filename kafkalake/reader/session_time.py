"""Parses times and durations in options as Spark does: a time without a zone is in the session's zone.

Spark's own readers, Delta and Iceberg do the same. A Tokyo time read as UTC would silently select another snapshot.
A time that occurs twice when clocks change means the first. A skipped time is moved forward by the length of the gap,
as in Java.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kafkalake.errors import ConfigurationError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_MILLISECONDS = re.compile(r"-?(\d{1,3}|\d{5,1000})")
"""Four digits may be a year, and are refused."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?")


def parse_time(option: str, text: str, zone: str | None) -> int:
    """Return milliseconds since 1970 from such a number or an ISO 8601 time, in `zone` if the time has none.

    `zone` is one of Spark's names, or None if the session's is unknown. Raise `ConfigurationError` if the text cannot be resolved.
    """
    try:
        if _MILLISECONDS.fullmatch(text.strip()):
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
    return (parsed - EPOCH) // timedelta(milliseconds=1)


def parse_duration_ms(option: str, text: str) -> int:
    """Return milliseconds of a number with one of Spark's units (ms if it has none). Raise `ConfigurationError` if it is none."""
    found = re.fullmatch(r"(\d{1,15})\s*(us|ms|s|m|min|h|d)?", text.strip().lower())
    if found is None:
        raise ConfigurationError(f"{option} is {text!r}: give a duration such as 500ms, 30s or 15m")
    return int(found[1]) * _UNITS_US[found[2] or "ms"] // 1000


def zone_named(name: str) -> tzinfo:
    """Return the zone for `spark.sql.session.timeZone`: a region or an offset (+09:00). Raise `ConfigurationError` if unknown."""
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
