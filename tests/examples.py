"""How many examples hypothesis tries: as many as a test says in `scripts/soak`, a quarter of many of them in a run of all tests,
and a handful with the profile of `scripts/test --fast`.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from long_runs import ALL

FAST = "fast"
FEW = 25
"""So many are tried wherever there is time."""


def register_profiles() -> None:
    """Have hypothesis know the profile of the fast run, and no deadline in any: a busy machine is no fault of the code.

    Its pytest plugin loads profiles before test modules are imported.
    """
    settings.register_profile(FAST, max_examples=5, deadline=None)
    if (now := settings.get_current_profile_name()) != FAST:
        settings.register_profile(now, settings.get_profile(now), deadline=None)
        settings.load_profile(now)


def examples(count: int, **others: Any) -> settings:
    """Return settings of `count` examples, of no more than the profile's where it is the fast one, and no deadline."""
    if settings.get_current_profile_name() == FAST:
        count = min(count, settings.default.max_examples)
    elif not ALL and count > FEW:
        count = max(FEW, count // 4)
    return settings(**{"max_examples": count, "deadline": None, **others})
