"""Where things lie in a lake.

    <lake>/metadata/<table>                        a Delta table
    <lake>/metadata/format.json                    the version of this layout (`lake_format`)
    <lake>/metadata/cluster-id                     the id of the lake's cluster (`identity`)
    <lake>/metadata/jobs/<job>.lock                held (flock) by the running job
    <lake>/logs/<broker id>/.lock                  held (flock) by the running broker
    <lake>/logs/<broker id>/.reserve               space for a start on a full disk (`reserve`)
    <lake>/logs/<broker id>/<topic>-<partition>/   segments, indexes and `state` of one partition

Every other module asks here, so that the layout is written down once. A directory is a lake when its `topics` table
has a Delta log; that table is created last, so a lake that was half made when its maker died is completed, not refused.
"""

from __future__ import annotations

import re
from pathlib import Path

from kafkalake.errors import ConfigurationError, LakeError
from kafkalake.metadata import lake_format
from kafkalake.metadata.disk import DISK, Disk

METADATA_DIRECTORY = "metadata"
LOG_DIRECTORY = "logs"
LOCK_FILE = ".lock"
RESERVE_FILE = ".reserve"

TOPICS = "topics"
BROKERS = "brokers"
PARTITIONS = "partitions"
SEGMENTS = "segments"
GROUP_OFFSETS = "group_offsets"
CLEANING = "cleaning"
TRANSACTIONS = "transactions"
TABLES = (BROKERS, SEGMENTS, PARTITIONS, GROUP_OFFSETS, CLEANING, TRANSACTIONS, TOPICS)
"""The Delta tables in the order in which they are created."""

JOB_RUNS = "job_runs"
LAG = "lag"
JOB_TABLES = (JOB_RUNS, LAG)
"""Delta tables that a job makes when it first has something to say; a lake without them is whole."""

BROKER_SETTINGS_FILE = "broker-settings.json"
GROUP_SETTINGS_FILE = "group-settings.json"
STATIC_SETTINGS_FILE = "broker-settings-static.json"
"""Beside a broker's logs: its dynamic settings, and those of its command line, so that a job knows them without the broker."""


_UMASK = 0o027


def table_path(lake: Path, table: str) -> Path:
    """Directory of the Delta table `table`."""
    return lake / METADATA_DIRECTORY / table


def broker_log_path(lake: Path, broker_id: int) -> Path:
    """Directory that holds the partitions of one broker."""
    return lake / LOG_DIRECTORY / str(broker_id)


def partition_path(lake: Path, broker_id: int, topic: str, partition: int) -> Path:
    """Directory of one partition's segments."""
    return broker_log_path(lake, broker_id) / f"{topic}-{partition}"


def lock_path(lake: Path, broker_id: int) -> Path:
    """File that the running broker keeps locked."""
    return broker_log_path(lake, broker_id) / LOCK_FILE


def reserve_path(lake: Path, broker_id: int) -> Path:
    """File that keeps space for the next start of the broker."""
    return broker_log_path(lake, broker_id) / RESERVE_FILE


def job_lock_path(lake: Path, job: str) -> Path:
    """File that a running job keeps locked, so that two of a kind do not work on one lake at once."""
    return lake / METADATA_DIRECTORY / "jobs" / f"{job}.lock"


def relative_path(lake: Path, file: Path) -> str:
    """`file` as `segments.path` holds it: relative to the lake, with forward slashes."""
    return file.relative_to(lake).as_posix()


SEGMENT_PATH = "^logs/[0-9]+/[^/]+-[0-9]+/[0-9][^/]*$"
"""What every path in the column `segments.path` looks like: a file of a partition's directory. Others could lead out of the lake,
and whoever reads them would open, rewrite or unlink what is not the lake's."""


def is_lake(path: Path) -> bool:
    """Whether `path` holds a lake."""
    log = table_path(path, TOPICS) / "_delta_log"
    try:
        return any(entry.suffix in (".json", ".parquet") for entry in log.iterdir())
    except OSError:
        return False


def require_lake(path: Path) -> Path:
    """`path` itself when it is a lake.

    Raises `LakeError` with what to do about it when it is not, or when it is one that this version cannot read.
    """
    if is_lake(path):
        lake_format.require_readable(path)
        return path
    if not path.exists():
        raise LakeError(
            f"no lake at {path}: there is no such directory. `kafkalake broker start --lake {path}` makes one."
        )
    if not path.is_dir():
        raise LakeError(f"no lake at {path}: that is a file. Name the directory that holds `metadata` and `logs`.")
    raise LakeError(
        f"no lake at {path}: it has no metadata/topics table. Name the directory that holds `metadata` and `logs`, "
        f"or let `kafkalake broker start --lake` make a lake in an empty directory."
    )


def prepare_lake(path: Path, disk: Disk = DISK) -> Path:
    """Make the directories of a lake at `path`, durably, unless they are there; the tables are the store's.

    Raises `LakeError` when `path` holds something else, is a lake that this version must not change, or cannot be written.
    """
    if re.search("%[0-9A-Fa-f]{2}", str(path.absolute())):
        raise LakeError(
            f"cannot make a lake at {path}: Delta's readers take `%` and two digits for an escaped character."
        )
    if not is_lake(path):
        _refuse_foreign_directory(path)
    lake_format.require_writable(path)
    try:
        for name in (METADATA_DIRECTORY, LOG_DIRECTORY):
            disk.make_directory(path.absolute() / name)
    except OSError as error:
        raise LakeError(f"cannot make a lake at {path}: {error.strerror or error}.") from error
    return path


def lake_umask(lake: Path, setting: str | None = None) -> int:
    """Return which permissions files and directories of a lake do not get: `setting`, as `umask` writes it, or as the lake has it.

    A new lake is closed to all but the user and the group: directories 0750, files 0640. Raise `ConfigurationError`.
    """
    if setting is not None:
        if not re.fullmatch("0?[0-7]{3}", setting):
            raise ConfigurationError(f"lake.umask is an octal number such as 027, not {setting!r}")
        return int(setting, 8)
    try:
        return ~(lake / METADATA_DIRECTORY).stat().st_mode & 0o077
    except OSError:
        return _UMASK


def _refuse_foreign_directory(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise LakeError(f"cannot make a lake at {path}: that is a file.")
    ours = (METADATA_DIRECTORY, LOG_DIRECTORY, "lost+found")  # the last is in every new ext4 volume
    foreign = sorted(entry.name for entry in path.iterdir() if entry.name not in ours and entry.name[0] != ".")
    if foreign:
        raise LakeError(
            f"cannot make a lake at {path}: it already holds other files ({', '.join(foreign[:3])}). "
            "Name an empty or a new directory."
        )
