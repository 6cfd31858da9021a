"""Options of a write: what each may be, and what is said where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalake.errors import ConfigurationError
from kafkalake.spark.sink.write_options import WriteOptions, parse_write_options


def test_options_are_parsed_in_any_case_and_those_of_a_read_passed_over() -> None:
    given = {
        "LAKE": "/lake",
        "path": "/warehouse/clicks",
        "subscribe": "clicks",
        "startingOffsets": "earliest",
        "txnappid": "etl",
        "txnVersion": "7",
        "commitTimeout": "1500ms",
        "kafka.bootstrap.servers": "a:1, [::1]:2",
        "checkpointLocation": "/cp",
    }
    expected = WriteOptions(Path("/lake"), "clicks", "etl", 7, 1.5, (("a", 1), ("::1", 2)))
    assert parse_write_options(given) == expected
    for version in (1_700_000_000_000_000_000, 2**63 - 1):  # a time in nanoseconds, as some count their writes
        assert parse_write_options(given | {"txnVersion": str(version)}).version == version
    assert parse_write_options({"lake": "/lake"}) == WriteOptions(Path("/lake"), None, None, 0, 120)
    assert parse_write_options({"lake": "/lake", "path": "clicks", "topic": "views"}).topic == "views"
    assert parse_write_options({"lake": "/lake", "path": "clicks"}).topic == "clicks"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"txnAppId": "etl"}, "txnAppId and txnVersion belong together"),
        ({"txnVersion": "1"}, "txnAppId and txnVersion belong together"),
        ({"txnAppId": "e t l", "txnVersion": "1"}, "txnAppId is 'e t l'"),
        ({"txnAppId": "etl", "txnVersion": "-1"}, "txnVersion is '-1'"),
        ({"txnAppId": "etl", "txnVersion": str(2**63)}, r"txnVersion is '9223372036854775808': .* at most 92233720"),
        ({"txnAppId": "etl", "txnVersion": "\u0661"}, "txnVersion is"),
        ({"topic": "a,b"}, "'a,b' is not one topic's name"),
        ({"topic": ".."}, r"'\.\.' is not one topic's name"),
        ({"commitTimeout": "soon"}, "commitTimeout is 'soon'"),
        ({"commitTimeout": "0"}, "commitTimeout is '0'"),
        ({"kafka.bootstrap.servers": "here"}, "'here' is not HOST:PORT"),
        ({"tpoic": "x"}, "unknown option 'tpoic'; did you mean topic"),
    ],
)
def test_what_an_option_cannot_be_is_said(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_write_options({"lake": "/lake", **given})
