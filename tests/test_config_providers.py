"""References in settings: what they stand for is in memory only."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalake.config.properties import read_properties
from kafkalake.config.providers import has_reference, resolvable, resolve, without_secrets
from kafkalake.errors import ConfigurationError


def test_references_stand_for_lines_of_files_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "with:colon.properties"
    file.write_text("# a comment\n! another\n\n password = hunter2=x \nempty=\n")
    monkeypatch.setenv("KAFKALAKE_TEST_SECRET", "s3cret")
    stated = {
        "a": f"${{file:{file}:password}}",
        "b": "x-${env:KAFKALAKE_TEST_SECRET}-y",
        "c": "plain ${other:x}",
        "d": "",
    }
    resolved = resolve(stated)
    assert resolved == {"a": "hunter2=x", "b": "x-s3cret-y", "c": "plain ${other:x}", "d": ""}
    assert [has_reference(text) for text in stated.values()] == [True, True, False, False]
    said = without_secrets("Invalid value hunter2=x for a", stated, resolved)
    assert said == f"Invalid value {stated['a']} for a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${env:NO_SUCH_VARIABLE}", "no environment variable"),
        ("${file:/no/such/file:x}", "cannot read /no/such/file"),
        ("${file:nothing}", "a file and a name in it"),
    ],
)
def test_a_reference_to_nothing_is_refused_and_another_process_does_without(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        resolve({"a": text})
    assert resolvable({"a": text, "b": "1"}) == {"b": "1"}


def test_a_file_of_settings_names_the_line_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("num.partitions=4\nwhat\n")
    with pytest.raises(ConfigurationError, match=r"broker\.properties, line 2: not NAME=VALUE"):
        read_properties(file)
    file.write_text("password=hunter2\n")
    with pytest.raises(ConfigurationError, match="no line other=") as raised:
        resolve({"a": f"${{file:{file}:other}}"})
    assert "hunter2" not in str(raised.value)
