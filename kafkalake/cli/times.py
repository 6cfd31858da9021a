"""Points in time and durations on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from kafkalake.cli.output import UsageProblem
from kafkalake.config.delay_levels import UNITS_MS

EARLIEST_MS, LATEST_MS = -(2**63), 2**63 - 1
"""The bounds of a timestamp, which is 64 bits in Kafka's protocol."""

_SHORT = re.compile(r"(\d{1,18})\s*(ms|s|m|h|d)")
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_ISO_UNITS_MS = (UNITS_MS["d"], UNITS_MS["h"], UNITS_MS["m"], UNITS_MS["s"])
_LONGEST_MS = 365_000 * UNITS_MS["d"]


def parse_time(text: str, option: str, *, now: datetime | None = None) -> int:
    """Return ms since 1970 for `1732176000000`, `2026-11-21T08:00:00Z`, `2026-11-21` or `15m` (ago; ms, s, m, h, d).

    A date and time without an offset is UTC. Raise `UsageProblem` for any other text.
    """
    moment_ms, ago_ms = _moment_ms(text), _short_ms(_without_ago(text))
    if moment_ms is None and (ago_ms is None or ago_ms > _LONGEST_MS):
        raise UsageProblem(
            f"{option} takes a time as 2026-11-21T08:00:00Z, milliseconds since 1970, or 15m for 15 minutes ago, not '{text}'"
        )
    return _ms(now) - (ago_ms or 0) if moment_ms is None else moment_ms


def parse_moment(text: str, option: str) -> int:
    """Return ms since 1970 for `1732176000000`, `2026-11-21T08:00:00Z` or `2026-11-21`, which may be in the future.

    A date and time without an offset is UTC. Raise `UsageProblem` for any other text.
    """
    moment_ms = _moment_ms(text)
    if moment_ms is None:
        raise UsageProblem(f"{option} takes a time as 2026-11-21T08:00:00Z or milliseconds since 1970, not '{text}'")
    return moment_ms


def parse_duration(text: str, option: str, *, now: datetime | None = None) -> int:
    """Return the time a duration ago in ms since 1970: ISO 8601's `PT1H30M` and `P2DT3H`, or `15m`.

    Raise `UsageProblem` for any other text.
    """
    return max(0, _ms(now) - duration_ms(_without_ago(text), option))


def duration_ms(text: str, option: str) -> int:
    """Return ms for ISO 8601's `PT1H30M` and `P2DT3H`, or `15m`. Raise `UsageProblem` for any other text."""
    found_ms = _short_ms(text)
    iso = _ISO.fullmatch(text.strip().upper())
    if found_ms is None and iso and any(iso.groups()):
        found_ms = round(sum(float(part or 0) * ms for part, ms in zip(iso.groups(), _ISO_UNITS_MS, strict=True)))
    if found_ms is None:
        raise UsageProblem(f"{option} takes a duration as PT1H30M, P2D or 15m, not '{text}'")
    if found_ms > _LONGEST_MS:
        raise UsageProblem(f"{option}: '{text}' is longer than there were years")
    return found_ms


def _moment_ms(text: str) -> int | None:
    if text.isdecimal():
        digits = text.lstrip("0") or "0"
        return int(digits) if len(digits) <= len(str(LATEST_MS)) and int(digits) <= LATEST_MS else None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return _ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _short_ms(text: str) -> int | None:
    found = _SHORT.fullmatch(text.strip())
    return None if found is None else int(found[1]) * UNITS_MS[found[2]]


def _without_ago(text: str) -> str:
    return text.strip().removesuffix(" ago")


def _ms(moment: datetime | None) -> int:
    return round((moment or datetime.now(UTC)).timestamp() * 1000)
