"""A kafkalake broker as a process, whose wall clock is ahead of the machine's by as much as a test says."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kafka_reference import Kafkalake


class BrokerWithClock(Kafkalake):
    """See the module. Its clock is to be set before it is started."""

    def _command(self) -> Sequence[str]:
        pairs = [f"{name}={value}" for name, value in ({"node.id": str(self.broker_id)} | self._settings).items()]
        script = Path(__file__).parent / "broker_with_clock.py"
        return [sys.executable, str(script), str(self.lake), str(self.port), str(self._clock), *pairs]

    @property
    def _clock(self) -> Path:
        return self.directory / "clock"

    def move_clock(self, ahead_ms: int) -> None:
        partial = self._clock.with_suffix(".new")
        partial.write_text(str(ahead_ms))
        partial.replace(self._clock)
