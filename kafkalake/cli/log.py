"""`kafkalake log`: inspects segments and checks a lake. Needs no broker, and does not disturb a running one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalake.cli.options import Json, parse_lake
from kafkalake.cli.output import Failure, show_error, size, write, write_json, write_line
from kafkalake.counted import counted
from kafkalake.printable import printable

if TYPE_CHECKING:
    from kafkalake.storage.dump import DumpedBatch, DumpedEntry, DumpedRecord
    from kafkalake.storage.verify import Problem

app = typer.Typer(no_args_is_help=True, help="Check a lake's files, print a segment.")


@app.command(epilog="Example:  [cyan]kafkalake log verify ./lake || echo damaged[/cyan]")
def verify(
    lake: Annotated[
        Path, typer.Argument(parser=parse_lake, metavar="LAKE", help="The lake's directory.", show_default=False)
    ],
    json: Json = False,
) -> None:
    """Check a lake: checksums, offsets, indexes, state, metadata.

    What is wrong goes to stderr, a line each: file, position, problem. The exit code is 1 then.
    """
    from rich.text import Text

    from kafkalake.cli.output import error_console
    from kafkalake.storage.verify import segment_files

    printer = error_console()
    problems = []
    for problem in problems_of(lake):
        problems.append(problem)
        place = f"{problem.file}: " if problem.position < 0 else f"{problem.file}: at byte {problem.position}: "
        printer.print(Text.assemble((printable(place), "bold"), printable(problem.what)))
    segments = segment_files(lake)
    partitions = {segment.parent for segment in segments}
    total = sum(_size(segment) for segment in segments)
    if json:
        write_json(
            {
                "lake": str(lake),
                "partitions": len(partitions),
                "segments": len(segments),
                "bytes": total,
                "problems": [
                    {"file": problem.file, "position": problem.position, "problem": problem.what}
                    for problem in problems
                ],
            }
        )
    elif not problems:
        write_line(
            f"No problems in {counted(len(segments), 'segment')} of {counted(len(partitions), 'partition')}, {size(total)}."
        )
    if problems:
        if not json:
            show_error(f"{len(problems):,} problems in {lake}" if len(problems) > 1 else f"a problem in {lake}")
        raise typer.Exit(1)


def problems_of(lake: Path) -> Iterator[Problem]:
    """Yield inconsistencies of a lake in itself and with its Delta tables. Raise `LakeError` if it is not a lake."""
    from kafkalake.metadata.delta import DeltaMetadataStore
    from kafkalake.metadata.paths import require_lake
    from kafkalake.reader.verification import verify

    yield from verify(DeltaMetadataStore(require_lake(lake), create=False))


@app.command(
    epilog="""Examples

  [cyan]kafkalake log dump ./lake/logs/0/clicks-0/00000000000000000000.arrow[/cyan]
  [cyan]kafkalake log dump ./lake/logs/0/clicks-0/state --json[/cyan]"""
)
def dump(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A segment (*.arrow), one of its indexes, or state.", show_default=False),
    ],
    batches_only: Annotated[
        bool, typer.Option("--batches-only", help="Producer batches without their records.")
    ] = False,
    json: Json = False,
) -> None:
    """Print a segment: producer batches and records, as kafka-dump-log does; or what another file of a log holds."""
    from kafkalake.storage.dump import DumpedBatch, dump_file

    if file.is_dir():
        raise Failure(f"{file} is a directory; name one of its files, such as {_first_segment(file)}")
    if not file.exists():
        raise Failure(f"{file}: no such file")
    damaged = False
    if not json:
        write_line(f"Dumping {file}")
    for found in dump_file(file, records=not batches_only):
        if isinstance(found, DumpedBatch):
            lines = [_json_line(_batch_as_json(found, not batches_only))] if json else _batch_lines(found)
        else:
            damaged |= found.kind == "damage"
            lines = [_json_line(_entry_as_json(found))] if json else [_entry_line(found)]
        write(("\n".join(lines) + "\n").encode("utf-8", "backslashreplace"))
    if damaged:
        raise Failure(f"{file} is damaged")


def _batch_lines(batch: DumpedBatch) -> list[str]:
    """Format a batch and its records like `kafka-dump-log`. `position` is that of the enclosing Arrow message."""
    last_sequence = batch.base_sequence + batch.last_offset - batch.base_offset if batch.base_sequence >= 0 else -1
    time = "LogAppendTime" if batch.log_append_time else "CreateTime"
    head = (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.records} "
        f"baseSequence: {batch.base_sequence} lastSequence: {last_sequence} producerId: {batch.producer_id} "
        f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
        f"isTransactional: {str(batch.transactional).lower()} isControl: {str(bool(batch.control)).lower()} "
        f"position: {batch.position} {time}: {batch.max_timestamp} compresscodec: {batch.codec}"
    )
    if batch.control:
        head += f" endTxnMarker: {batch.control.upper()}"
    return [head, *(_record_line(batch, record, time) for record in batch.rows)]


def _record_line(batch: DumpedBatch, record: DumpedRecord, time: str) -> str:
    sequence = batch.base_sequence + record.offset - batch.base_offset if batch.base_sequence >= 0 else -1
    text = (
        f"| offset: {record.offset} {time}: {record.timestamp} keySize: {_length(record.key)} "
        f"valueSize: {_length(record.value)} sequence: {sequence} headerKeys: [{','.join(key for key, _ in record.headers)}]"
    )
    if record.key is not None:
        text += f" key: {_readable(record.key)}"
    if record.value is not None:
        text += f" payload: {_readable(record.value)}"
    return text


def _entry_line(entry: DumpedEntry) -> str:
    fields = " ".join(f"{name}: {value}" for name, value in entry.fields.items())
    return f"{entry.kind} position: {entry.position} {fields}"


def _batch_as_json(batch: DumpedBatch, records: bool) -> dict[str, object]:
    from kafkalake.cli.record_output import as_text

    document: dict[str, object] = {
        "kind": "batch",
        "position": batch.position,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.records,
        "baseSequence": batch.base_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.leader_epoch,
        "isTransactional": batch.transactional,
        "control": batch.control or None,
        "maxTimestamp": batch.max_timestamp,
        "timestampType": "LogAppendTime" if batch.log_append_time else "CreateTime",
        "compression": batch.codec,
    }
    if records:
        document["records"] = [
            {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": as_text(record.key),
                "value": as_text(record.value),
                "headers": [{"key": key, "value": as_text(value)} for key, value in record.headers],
            }
            for record in batch.rows
        ]
    return document


def _entry_as_json(entry: DumpedEntry) -> dict[str, object]:
    return {"kind": entry.kind, "position": entry.position, **entry.fields}


def _json_line(document: dict[str, object]) -> str:
    import json

    return json.dumps(document, ensure_ascii=False, default=str)


def _readable(data: bytes) -> str:
    """Return bytes as one line of text, with unprintable characters escaped."""
    text = data.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # removed by retention meanwhile
        return 0


def _first_segment(directory: Path) -> str:
    found = sorted(directory.rglob("*.arrow"))
    return str(found[0]) if found else "00000000000000000000.arrow"
