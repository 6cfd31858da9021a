"""A scan of a topic's records with the interface of `pyarrow.dataset.Scanner`, but without threads.

pyarrow's scanner reads ahead in its own threads, even after the consumer has stopped (`LIMIT`). A thread that calls
back into Python while the interpreter exits aborts the process. Here a batch is read on request, in the requesting thread.
DuckDB requests from several threads and then filters and aggregates in the others. pyarrow only evaluates one batch in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.dataset as ds

Columns = Sequence[str] | Mapping[str, ds.Expression] | None


class TopicScanner:
    """The rows of `batches` that match `filter`, with `columns`, readable once. Has the methods of `ds.Scanner`."""

    def __init__(self, batches: pa.RecordBatchReader, columns: Columns, filter: ds.Expression | None) -> None:
        """Raise `pyarrow.ArrowInvalid` if an expression does not fit the schema."""
        self.dataset_schema = batches.schema
        self._batches = batches
        self._columns = columns
        self._filter = filter
        empty = pa.RecordBatch.from_pylist([], batches.schema)
        self.projected_schema: pa.Schema = self._scan(empty).projected_schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the batches, each read on request."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._found())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Return an iterator over the batches, each read on request."""
        return self._found()

    def to_table(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(self._found(), self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows, without reading further."""
        taken: list[pa.RecordBatch] = []
        found = self._found()
        while num_rows > 0 and (batch := next(found, None)) is not None:
            taken.append(batch.slice(0, num_rows))
            num_rows -= taken[-1].num_rows
        return pa.Table.from_batches(taken, self.projected_schema)

    def take(self, indices: pa.Array) -> pa.Table:
        """Return the rows at these positions."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """Return the number of rows."""
        return sum(batch.num_rows for batch in self._found())

    def _found(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if self._filter is None and not isinstance(self._columns, Mapping):
                yield batch if self._columns is None else batch.select(list(self._columns))
            else:
                yield from self._scan(batch).to_table().to_batches()

    def _scan(self, batch: pa.RecordBatch) -> ds.Scanner:
        return ds.Scanner.from_batches(
            [batch], schema=batch.schema, columns=self._columns, filter=self._filter, use_threads=False
        )
