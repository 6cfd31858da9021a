"""Ctrl-C during a query of `kafkalake sql`.

DuckDB looks for signals between its tasks on the main thread, which has none while its other threads work, and Python runs a
handler only once the call into DuckDB has returned. So a thread waits for the byte that Python's part in C writes at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@contextmanager
def ended_by_ctrl_c(connection: DuckDBPyConnection) -> Iterator[None]:
    """End what the connection runs in this block at Ctrl-C, and raise `KeyboardInterrupt`. For the main thread."""
    import duckdb

    ours, signals = os.pipe()
    os.set_blocking(signals, False)

    def wait() -> None:
        while number := os.read(ours, 1):
            if number[0] == signal.SIGINT:
                connection.interrupt()

    thread = Thread(target=wait, daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
    try:
        yield
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except RuntimeError as error:
        if str(error) != "Query interrupted":  # as DuckDB says that it has found the signal itself
            raise
        raise KeyboardInterrupt from None
    finally:
        signal.set_wakeup_fd(before)
        os.close(signals)
        thread.join()
        os.close(ours)
