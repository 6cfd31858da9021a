"""The parts of its machine that a broker uses, in one value, so that a test can run a whole broker from one seed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from kafkalake.clock import Clock, SystemClock
from kafkalake.storage.files import REAL_FILES, Files


@dataclass(frozen=True, slots=True)
class World:
    """Time, chance, the disk and new ids. The default is the machine's."""

    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    files: Files = REAL_FILES
    ids: Callable[[], uuid.UUID] = uuid.uuid4
    """Returns a random id that was never returned before, for topics, members and brokers."""
