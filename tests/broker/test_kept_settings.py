"""Settings that earlier releases kept in files beside a broker's logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalake.broker.admin.kept_settings import KeptSettings
from kafkalake.cluster.image import ConfigResource, ResourceKind
from kafkalake.errors import LakeError
from kafkalake.metadata.paths import BROKER_SETTINGS_FILE, GROUP_SETTINGS_FILE
from kafkalake.storage.files import REAL_FILES


def test_the_files_become_resources_and_are_removed(tmp_path: Path) -> None:
    (tmp_path / BROKER_SETTINGS_FILE).write_text(
        '{"default": {"log.retention.ms": "5"}, "broker": {"log.level": "debug"}}'
    )
    (tmp_path / GROUP_SETTINGS_FILE).write_text('{"g": {"consumer.session.timeout.ms": "7000"}}')
    kept = KeptSettings(str(tmp_path), 3, REAL_FILES)
    assert kept.config == {
        ConfigResource(ResourceKind.BROKER, ""): {"log.retention.ms": "5"},
        ConfigResource(ResourceKind.BROKER, "3"): {"log.level": "debug"},
        ConfigResource(ResourceKind.GROUP, "g"): {"consumer.session.timeout.ms": "7000"},
    }
    kept.remove()
    assert KeptSettings(str(tmp_path), 3, REAL_FILES).config == {}
    kept.remove()


@pytest.mark.parametrize("content", ["", "[1]", '{"default": 1}'])
def test_a_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / BROKER_SETTINGS_FILE).write_text(content)
    with pytest.raises(LakeError):
        KeptSettings(str(tmp_path), 0, REAL_FILES)


def test_a_groups_value_that_is_no_number_is_refused(tmp_path: Path) -> None:
    (tmp_path / GROUP_SETTINGS_FILE).write_text('{"g": {"consumer.session.timeout.ms": "soon"}}')
    with pytest.raises(LakeError):
        KeptSettings(str(tmp_path), 0, REAL_FILES)
