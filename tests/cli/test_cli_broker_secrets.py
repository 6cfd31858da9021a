"""Settings from a file, values that stand elsewhere, and who may read what a broker writes."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from kafka_reference import Kafkalake, create_topic

pytestmark = pytest.mark.process
MARK = "4242424"


class ConfiguredKafkalake(Kafkalake):
    """A broker with more words on its command line."""

    more: Sequence[str] = ()

    def _command(self) -> Sequence[str]:
        return [*super()._command(), *self.more]


def modes(lake: Path) -> set[tuple[bool, int]]:
    """Of everything in a lake: whether it is a directory, and its permissions."""
    entries = [lake, *lake.rglob("*")]
    return {(entry.is_dir(), stat.S_IMODE(entry.stat().st_mode)) for entry in entries}


def test_a_lake_is_the_users_and_the_groups_and_secrets_are_in_none_of_its_files(tmp_path: Path) -> None:
    secrets, settings, lake = tmp_path / "secrets", tmp_path / "broker.properties", tmp_path / "lake"
    secrets.write_text(f"size={MARK}\n")
    settings.write_text(f"num.partitions=3\nfetch.max.bytes=${{file:{secrets}:size}}\nnum.partitions=5\n")
    broker = ConfiguredKafkalake(lake, directory=tmp_path / "broker", environment={"PARTITIONS": "2"})
    broker.more = ["--config-file", str(settings), "--config", "num.partitions=${env:PARTITIONS}"]
    try:
        broker.start()
        create_topic(broker, "clicks", partitions=2)
        static = json.loads((lake / "logs" / "0" / "broker-settings-static.json").read_text())
        assert static["fetch.max.bytes"] == f"${{file:{secrets}:size}}"
        assert static["num.partitions"] == "${env:PARTITIONS}"
        broker.stop()
        assert modes(lake) <= {(True, 0o750), (False, 0o640), (False, 0o600)}
        assert MARK not in broker.stderr_tail(200)
        held = [path for path in lake.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()]
        assert held == []
        broker.more = ["--config", "lake.umask=007"]
        broker.start()  # without the file: the settings of before are gone
        broker.stop()
        lake.chmod(0o755)
        (lake / "metadata").chmod(0o755)
        broker.more = []
        broker.start()  # a lake that others read goes on being read by them
        create_topic(broker, "after")
        assert stat.S_IMODE((lake / "logs" / "0" / "after-0").stat().st_mode) == 0o755
    finally:
        broker.close()


def test_a_bad_value_is_shown_by_its_reference(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("size=hunter2\n")
    command = [sys.executable, "-m", "kafkalake", "broker", "start", "--lake", str(tmp_path / "lake")]
    command += ["--config", f"fetch.max.bytes=${{file:{secrets}:size}}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "hunter2" not in ended.stderr
    assert f"${{file:{secrets}:size}}" in ended.stderr.replace("\n", "")
