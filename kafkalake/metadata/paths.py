"""The layout of a lake.

    <lake>/metadata/<table>                        a Delta table
    <lake>/metadata/format.json                    the version of this layout (`lake_format`)
    <lake>/metadata/cluster-id                     the id of the lake's cluster (`identity`)
    <lake>/metadata/cluster.lock                   held (flock) by `cluster start`
    <lake>/metadata/jobs/<job>.lock                held (flock) by the running job
    <lake>/logs/<broker id>/.lock                  held (flock) by the running broker
    <lake>/logs/<broker id>/.reserve               space for a start on a full disk (`reserve`)
    <lake>/logs/<broker id>/<topic>-<partition>/   segments, indexes and `state` of one partition

All paths are defined here once. A directory is a lake if its `topics` table has a Delta log. That table is created last, so a lake
left incomplete by a crash is completed, not refused.
"""

from __future__ import annotations

import re
from pathlib import Path

from kafkalake.errors import ConfigurationError, LakeError, file_sentence
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
CLUSTER = "cluster"
TABLES = (BROKERS, SEGMENTS, PARTITIONS, GROUP_OFFSETS, CLEANING, TRANSACTIONS, CLUSTER, TOPICS)
"""The Delta tables in the order in which they are created."""

JOB_RUNS = "job_runs"
LAG = "lag"
JOB_TABLES = (JOB_RUNS, LAG)
"""The Delta tables created by the first job that writes to them. A lake without them is complete."""

BROKER_SETTINGS_FILE = "broker-settings.json"
GROUP_SETTINGS_FILE = "group-settings.json"
STATIC_SETTINGS_FILE = "broker-settings-static.json"
"""The files beside a broker's logs with dynamic and command-line settings, readable by jobs without the broker."""


_UMASK = 0o027


def table_path(lake: Path, table: str) -> Path:
    """Return the directory of the Delta table `table`."""
    return lake / METADATA_DIRECTORY / table


def broker_log_path(lake: Path, broker_id: int) -> Path:
    """Return the directory of one broker's partitions."""
    return lake / LOG_DIRECTORY / str(broker_id)


def partition_path(lake: Path, broker_id: int, topic: str, partition: int) -> Path:
    """Return the directory of one partition's segments."""
    return broker_log_path(lake, broker_id) / f"{topic}-{partition}"


def partition_paths(lake: Path, topic: str, partition: int) -> dict[int, Path]:
    """Return the directories that a partition has on disk, by broker, ascending."""
    found = (lake / LOG_DIRECTORY).glob(f"*/{topic}-{partition}")
    return dict(sorted((int(path.parent.name), path) for path in found if path.parent.name.isdecimal()))


def lock_path(lake: Path, broker_id: int) -> Path:
    """Return the file locked by the running broker."""
    return broker_log_path(lake, broker_id) / LOCK_FILE


def reserve_path(lake: Path, broker_id: int) -> Path:
    """Return the file that reserves space for the broker's next start."""
    return broker_log_path(lake, broker_id) / RESERVE_FILE


def cluster_lock_path(lake: Path) -> Path:
    """Return the file locked by the process that runs the lake's brokers as its children."""
    return lake / METADATA_DIRECTORY / "cluster.lock"


def job_lock_path(lake: Path, job: str) -> Path:
    """Return the file locked by a running job, so that no two of a kind work on one lake at once."""
    return lake / METADATA_DIRECTORY / "jobs" / f"{job}.lock"


def relative_path(lake: Path, file: Path) -> str:
    """Return `file` as in `segments.path`: relative to the lake, with forward slashes."""
    return file.relative_to(lake).as_posix()


SEGMENT_PATH = "^logs/(?P<broker_id>[0-9]+)/[^/]+-[0-9]+/[0-9][^/]*$"
"""The pattern of every path in the column `segments.path`: a file in a partition's directory. Other paths could lead out of the
lake, where readers and jobs would open, rewrite or unlink foreign files."""


def lake_directory(text: str) -> Path:
    """Return the path in `text`, which may be a file: URI. Raise `ConfigurationError` for another URI, and for no text."""
    if not text:
        raise ConfigurationError("the name of the lake's directory is empty")
    found = local_path(text)
    if found is None:
        raise ConfigurationError(
            f"a lake is a directory of a file system that is mounted on this machine, and {text} is none"
        )
    return found


def local_path(text: str) -> Path | None:
    """Return the path in `text`, which may be a file: URI, or None for that of another file system, or without a `/` at first."""
    if text.startswith("file:/"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    return None if re.match("file:|[A-Za-z][A-Za-z0-9+.-]*://", text) else Path(text)


def is_lake(path: Path) -> bool:
    """Return whether `path` holds a lake."""
    log = table_path(path, TOPICS) / "_delta_log"
    try:
        return any(entry.suffix in (".json", ".parquet") for entry in log.iterdir())
    except OSError:
        return False


def require_lake(path: Path) -> Path:
    """Return `path`. Raise `LakeError`, with advice, if it is not a lake or this version cannot read it."""
    if is_lake(path):
        lake_format.require_readable(path)
        return path
    try:
        next((table_path(path, TOPICS) / "_delta_log").iterdir(), None)
    except PermissionError as error:
        raise LakeError(f"the lake at {path} cannot be read: {file_sentence(error)}") from error
    except OSError:
        pass
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


def why_no_delta_path(path: str) -> str | None:
    """Return why not all of Delta's readers open a table at a path; None if they do. Spark and delta-rs differ."""
    if re.search("%[0-9A-Fa-f]{2}", path):
        return "Delta's readers take `%` and two digits for an escaped character"
    if re.search("[\x00-\x1f\x7f]", path):
        return "Delta's readers take no control characters in a path"
    return None


def prepare_lake(path: Path, disk: Disk = DISK) -> Path:
    """Create missing directories of a lake at `path` durably and return `path`. The store creates the tables.

    Raise `LakeError` if `path` holds something else, is a lake that this version must not change, or cannot be written.
    """
    if why := why_no_delta_path(str(path.absolute())):
        raise LakeError(f"cannot make a lake at {path}: {why}.")
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
    """Return the umask of a lake's files and directories: `setting` (octal text) if given, else that of the existing lake.

    A new lake is accessible to user and group only: directories 0750, files 0640. Raise `ConfigurationError` if `setting` is not
    octal.
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
