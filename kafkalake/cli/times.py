"""Points in time on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from kafkalake.cli.output import UsageProblem

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_time(text: str, option: str, *, now: datetime | None = None) -> int:
    """Return ms since 1970 for `1732176000000`, `2026-11-21T08:00:00Z`, `2026-11-21` or `15m` (ago; ms, s, m, h, d).

    A date and time without an offset is UTC. Raise `UsageProblem` for any other text.
    """
    if text.isdecimal():
        return int(text)
    ago = re.fullmatch(r"(\d+)\s*(ms|s|m|h|d)(?: ago)?", text.strip())
    if ago:
        past = (now or datetime.now(UTC)) - timedelta(milliseconds=int(ago[1]) * _UNITS[ago[2]])
        return int(past.timestamp() * 1000)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageProblem(
            f"{option} takes a time as 2026-11-21T08:00:00Z, milliseconds since 1970, or 15m for 15 minutes ago, not '{text}'"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(text: str, option: str, *, now: datetime | None = None) -> int:
    """Return the time a duration ago in ms since 1970: ISO 8601's `PT1H30M` and `P2DT3H`, or `15m`.

    Raise `UsageProblem` for any other text.
    """
    iso = re.fullmatch(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", text.strip().upper())
    if iso and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        back = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        try:
            return max(0, round(((now or datetime.now(UTC)) - back).timestamp() * 1000))
        except OverflowError:
            raise UsageProblem(f"{option}: '{text}' is longer than there were years") from None
    if re.fullmatch(r"\d+\s*(ms|s|m|h|d)(?: ago)?", text.strip()):
        return parse_time(text, option, now=now)
    raise UsageProblem(f"{option} takes a duration as PT1H30M, P2D or 15m, not '{text}'")
