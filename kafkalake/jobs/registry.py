"""The jobs by name, and their modules, which are imported only when used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec


@dataclass(frozen=True, slots=True)
class JobEntry:
    """A job: its module, and a summary for users.

    The module has `main(arguments) -> exit code`, and `check_arguments(arguments)`, which raises `ConfigurationError`.
    """

    name: str
    module: str
    summary: str

    def main(self) -> Callable[[Sequence[str]], int]:
        """Import the job and return its command line function."""
        main: Callable[[Sequence[str]], int] = import_module(self.module).main
        return main

    def check_arguments(self, arguments: Sequence[str]) -> None:
        """Import the job and raise `ConfigurationError` for arguments that its command line would refuse."""
        import_module(self.module).check_arguments(arguments)


_ENTRIES = (
    JobEntry(
        "retention", "kafkalake.jobs.retention", "remove segments that retention.ms and retention.bytes do not keep"
    ),
    JobEntry("compaction", "kafkalake.jobs.compaction.command", "keep the newest record of each key"),
    JobEntry("lag", "kafkalake.jobs.lag.command", "report how far consumer groups are behind, and alert"),
    JobEntry("maintenance", "kafkalake.jobs.maintenance", "keep metadata tables small, remove what nothing needs"),
    JobEntry("consume", "kafkalake.jobs.consume.command", "copy a topic into a Delta table"),
)

JOBS = {entry.name: entry for entry in _ENTRIES if find_spec(entry.module) is not None}
"""The available jobs by name."""


def run_script(name: str, arguments: Sequence[str]) -> int:
    """Run a job as the script of its name and return the exit code, also after Ctrl-C while its modules are imported."""
    try:
        return JOBS[name].main()(arguments)
    except KeyboardInterrupt:
        return 130
