"""The Delta table `brokers`: one small file, replaced by every change."""

from __future__ import annotations

from kafkalake.metadata import changes, paths
from kafkalake.metadata.tables.lake_tables import LakeTables
from kafkalake.metadata.tables.schemas import BrokerRow


class DeltaBrokers(LakeTables):
    """`BrokerTable` on Delta."""

    def load_brokers(self) -> list[BrokerRow]:
        return sorted(self._load(paths.BROKERS, BrokerRow), key=lambda row: row.broker_id)

    def acquire_broker(self, row: BrokerRow, replacing: BrokerRow | None) -> None:
        self._replace_rows(paths.BROKERS, BrokerRow, lambda rows: changes.with_broker_acquired(rows, row, replacing))

    def renew_broker(self, row: BrokerRow) -> None:
        self._replace_rows(paths.BROKERS, BrokerRow, lambda rows: changes.with_broker_renewed(rows, row))

    def release_broker(self, broker_id: int, lease_id: str) -> None:
        self._replace_rows(
            paths.BROKERS, BrokerRow, lambda rows: changes.with_broker_released(rows, broker_id, lease_id)
        )
