"""Shell completion for names of topics, groups and settings.

A shell runs a separate process for every key press, so listings are cached in a file for a second. If the cluster
does not answer soon, nothing is completed: a prompt must never block or show an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from kafkalake.client.administration.blocking import Admin

KEPT_S = 1.0
TIMEOUT_MS = 1_000


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics whose names begin with the typed text."""
    return _beginning(incomplete, _listed(context, "topics", _topics))


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Return the groups whose names begin with the typed text."""
    return _beginning(incomplete, _listed(context, "groups", _groups))


def complete_broker_list(context: typer.Context, incomplete: str) -> list[str]:
    """Return the typed list of ids, separated by commas, with each further broker."""
    typed, comma, last = incomplete.rpartition(",")
    used = typed.split(",")
    ids = [each for each in _beginning(last, _listed(context, "brokers", _brokers)) if each not in used]
    return [f"{typed}{comma}{each}" for each in ids]


def complete_topic_setting(incomplete: str) -> list[str]:
    """Return `NAME=` of the topic settings that begin with the typed text."""
    from kafkalake.config.topics import TOPIC_SETTINGS

    return _beginning(incomplete, [f"{name}=" for name in TOPIC_SETTINGS])


def complete_broker_setting(incomplete: str) -> list[str]:
    """Return `NAME=` of the broker settings that begin with the typed text."""
    from kafkalake.config.broker import BROKER_SETTINGS

    return _beginning(incomplete, [f"{name}=" for name in BROKER_SETTINGS])


def _beginning(incomplete: str, names: list[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _topics(admin: Admin) -> list[str]:
    return [topic.name for topic in admin.list_topics() if not topic.is_internal]


def _brokers(admin: Admin) -> list[str]:
    return [str(node.broker_id) for node in admin.list_brokers()]


def _groups(admin: Admin) -> list[str]:
    return [group.group_id for group in admin.list_groups()]


def _listed(context: typer.Context, kind: str, ask: Callable[[Admin], list[str]]) -> list[str]:
    from kafkalake.cli.options import DEFAULT_BOOTSTRAP_SERVER, connect

    stated = context.params.get("bootstrap_server") or os.environ.get("KAFKALAKE_BOOTSTRAP_SERVERS")
    server = str(stated or DEFAULT_BOOTSTRAP_SERVER)
    kept = _cache_file(server, kind)
    with contextlib.suppress(OSError, ValueError):
        if 0 <= time.time() - kept.stat().st_mtime < KEPT_S:
            names: list[str] = json.loads(kept.read_text())
            return names
    try:
        with connect(server, timeout_ms=TIMEOUT_MS) as admin:
            names = ask(admin)
    except Exception:  # a prompt shows no errors
        return []
    with contextlib.suppress(OSError):
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        written = kept.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(names))
        os.replace(written, kept)
    return names


def _cache_file(server: str, kind: str) -> Path:
    import hashlib

    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "kafkalake" / f"{kind}-{hashlib.sha256(server.encode()).hexdigest()[:16]}.json"
