"""Opens a Delta table: creates it if missing, mends its log after a loss of power, and adds columns of later versions."""

from __future__ import annotations

import logging
import shutil
import uuid
from pathlib import Path

from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError

from kafkalake.errors import LakeError
from kafkalake.metadata.damaged_log import Damage, find_damage, set_aside
from kafkalake.metadata.delta_checkpoint import entry_path, log_path
from kafkalake.metadata.disk import Disk
from kafkalake.metadata.tables.data_files import TableDefinition, data_files, first_line, read_file

logger = logging.getLogger(__name__)


def open_table(path: Path) -> DeltaTable:
    """Open a table as it is. Raise `LakeError` if that fails."""
    try:
        return DeltaTable(path)
    except (DeltaError, OSError) as error:
        hint = ""
        if _damage_of(path) is not None:
            hint = " Its log is damaged, as after a loss of power; starting a broker on the lake mends it."
        raise LakeError(f"cannot open the Delta table {path}: {first_line(error)}.{hint}") from error


def open_or_create(path: Path, definition: TableDefinition, disk: Disk) -> DeltaTable:
    """Open a table with all columns of its definition, created if missing, mended if damaged. Raise `LakeError` on failure."""
    return _with_columns(_mended_or_created(path, definition, disk), path, definition, disk)


def _mended_or_created(path: Path, definition: TableDefinition, disk: Disk) -> DeltaTable:
    try:
        _mend(path, definition, disk)
    except OSError as error:
        raise LakeError(f"cannot mend the Delta table {path}: {error}") from error
    if not DeltaTable.is_deltatable(str(path)):
        if not definition.expendable and any(path.glob("**/*.parquet")):
            raise LakeError(
                f"cannot open the Delta table {path}: it has files but no log. Restore the directory from a backup."
            )
        return _create(path, definition, disk)
    try:
        return _open_whole(path, definition)
    except LakeError:
        if not definition.expendable:
            raise
        logger.warning("the Delta table %s cannot be read and is begun anew", path, exc_info=True)
    try:
        _begin_anew(path, disk)
    except OSError as error:
        raise LakeError(f"cannot begin the Delta table {path} anew: {error}") from error
    return _create(path, definition, disk)


def _open_whole(path: Path, definition: TableDefinition) -> DeltaTable:
    """Open a table, checking that the rows can be read if it is expendable."""
    table = open_table(path)
    if definition.expendable:
        for file in data_files(table):
            read_file(path, definition, file)
    return table


def _create(path: Path, definition: TableDefinition, disk: Disk) -> DeltaTable:
    try:
        table = DeltaTable.create(
            path,
            definition.schema,
            partition_by=list(definition.partition_by),
            name=path.name,
            configuration=definition.properties,
        )
        _force_created(path, disk)
        return table
    except (DeltaError, OSError) as error:
        if not DeltaTable.is_deltatable(str(path)):  # else another process has just created it
            raise LakeError(f"cannot create the Delta table {path}: {first_line(error)}") from error
    return open_table(path)


def _force_created(path: Path, disk: Disk) -> None:
    """Fsync a table's first entry and its directories."""
    disk.force(entry_path(path, 0))
    for directory in named_directories(path):
        disk.force_directory(directory)


def named_directories(path: Path) -> tuple[Path, ...]:
    """Return the directories whose fsync makes the names from the lake down to a table's log entries durable."""
    return log_path(path), path, path.parent, path.parent.parent


def _with_columns(table: DeltaTable, path: Path, definition: TableDefinition, disk: Disk) -> DeltaTable:
    """Add columns introduced by later versions of kafkalake (null in old rows) and return the table.

    Raise `LakeError` if that fails.
    """
    missing = _missing_columns(table, definition)
    if not missing:
        return table
    try:
        table.alter.add_columns(missing)
        disk.force(entry_path(path, table.version()))
        disk.force_directory(log_path(path))
    except (DeltaError, OSError) as error:
        table.update_incremental()
        if _missing_columns(table, definition):  # else another process has just added them
            raise LakeError(f"cannot add columns to {path}: {first_line(error)}") from error
    return table


def _missing_columns(table: DeltaTable, definition: TableDefinition) -> list[Field]:
    there = {column.name for column in table.schema().fields}
    return [column for column in Schema.from_arrow(definition.schema).fields if column.name not in there]


def _damage_of(path: Path) -> Damage | None:
    """Return the damage of a log, or None. It is checked twice, because a listing during concurrent writes may have a gap."""
    damage = find_damage(path)
    return damage if damage is not None and damage == find_damage(path) else None


def _mend(path: Path, definition: TableDefinition, disk: Disk) -> None:
    """Repair a damaged log. Raise `LakeError` if it is beyond repair, `OSError` on I/O errors."""
    damage = _damage_of(path)
    if damage is not None and damage.lacks_first:
        set_aside(path, damage, disk)
        _write_first_entry(path, definition, disk)
        damage = _damage_of(path)
    if damage is None:
        return
    if not damage.lost:
        set_aside(path, damage, disk)
    elif definition.expendable:
        logger.warning("the Delta table %s has lost its first entries and is begun anew", path)
        _begin_anew(path, disk)
    else:
        raise LakeError(
            f"cannot open the Delta table {path}: {damage.reason} cannot be read, and the entries that it stood for "
            "were removed. Restore the directory from a backup."
        )


def _begin_anew(path: Path, disk: Disk) -> None:
    """Rename a log so that the table can be recreated."""
    disk.rename(log_path(path), path / f"_delta_log.torn-{uuid.uuid4()}")
    disk.force_directory(path)


def _write_first_entry(path: Path, definition: TableDefinition, disk: Disk) -> None:
    """Recreate entry 0, which contains only the definition."""
    scratch = path.parent / f".{path.name}-{uuid.uuid4()}"
    try:
        DeltaTable.create(
            scratch,
            definition.schema,
            partition_by=list(definition.partition_by),
            name=path.name,
            configuration=definition.properties,
        )
        disk.replace(entry_path(path, 0), entry_path(scratch, 0).read_bytes())
    except DeltaError as error:
        raise LakeError(f"cannot mend the Delta table {path}: {first_line(error)}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
