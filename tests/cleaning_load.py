"""A load beside the jobs that clean a log: what `cleaning_clients.py` writes and reads at full speed, and how far it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from group_processes import Speaker
from waiting import wait_until

SCRIPT = Path(__file__).with_name("cleaning_clients.py")


class Load(Speaker):
    """Writes to and reads from partition 0 of a topic, as fast as the clients can, while the context is open.

    records_max: where the producer ends by itself; a million is 150 MB of log, were nothing cleaned. compacted: no key may be
    lost; otherwise retention may be faster than the consumer.
    """

    def __init__(self, servers: str, topic: str, *, records_max: int, compacted: bool) -> None:
        super().__init__([sys.executable, str(SCRIPT), servers, topic, str(records_max), str(int(compacted))])

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def written(self) -> int:
        """Offsets below it are acknowledged."""
        return self._now("written")

    @property
    def passed_to(self) -> int:
        """Where the last offsets end that the consumer passed over, because they were not there any more."""
        return self._now("passed_to")

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Until something holds; fails where the clients end before."""
        wait_until(lambda: condition() or self.process.poll() is not None, lambda: self.events[-1:])
        assert self.process.poll() is None, (self.events[-1:], *self.others)

    def read_again(self) -> None:
        """Have the consumer begin once more, where the log begins."""
        self.tell("again")

    def drain(self) -> None:
        """End the writing, and wait until the consumer has all; fails where anything was not as it should be."""
        self.tell("drain")
        assert self.finish() == 0, (self.events[-1:], *self.others)

    def _now(self, name: str) -> int:
        return int(self.events[-1][name]) if self.events else 0
