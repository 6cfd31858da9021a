"""Credentials of users and subscriptions to clients' metrics, as the cluster keeps and shows them."""

from __future__ import annotations

import hashlib

import pytest

from kafkalake.broker.admin.client_metrics import check_subscription, describe, names
from kafkalake.broker.admin.scram_credentials import (
    Credential,
    credential_text,
    credentials,
    mechanism_name,
    user_resource,
    users,
)
from kafkalake.cluster.image import ConfigResource, ResourceKind
from kafkalake.errors import (
    InvalidConfigError,
    InvalidRequestError,
    KafkaError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)


def test_a_credential_has_the_keys_of_rfc_7677_and_no_password() -> None:
    salt = bytes.fromhex("5b6d99689d12358eeca04b141236fa81")  # the example of the RFC
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    text = credential_text("SCRAM-SHA-256", 4096, salt, salted)
    fields = dict(each.split("=", 1) for each in text.split(","))
    assert fields["iterations"] == "4096"
    assert fields["stored_key"] == "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert fields["server_key"] == "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    config = {user_resource("alice"): {"SCRAM-SHA-256": text}}
    assert (users(config), credentials(config, "alice")) == (["alice"], [Credential(1, 4096)])
    assert credentials(config, "bob") == []


def test_credentials_that_cannot_be() -> None:
    for iterations in (4095, 16_385):
        with pytest.raises(UnacceptableCredentialError):
            credential_text("SCRAM-SHA-512", iterations, b"salt", b"password")
    with pytest.raises(UnacceptableCredentialError):
        user_resource("")
    with pytest.raises(UnsupportedSaslMechanismError):
        mechanism_name(3)


def test_a_subscription_is_shown_with_its_defaults() -> None:
    own = check_subscription("m", {"interval.ms": "100", "match": "client_id=x.*"})
    config = {ConfigResource(ResourceKind.CLIENT_METRICS, "m"): own}
    assert names(config) == ["m"]
    shown = [(each.setting.name, each.value, int(each.source)) for each in describe(config, "m")]
    assert shown == [("interval.ms", "100", 7), ("match", "client_id=x.*", 7), ("metrics", "", 5)]


@pytest.mark.parametrize(
    ("name", "settings", "error"),
    [
        ("", {}, InvalidRequestError),
        ("m", {"match": "client_id=a{99999999999999}"}, InvalidConfigError),
        ("m", {"match": "client_id=" + "(" * 3_000 + ")" * 3_000}, InvalidConfigError),
        ("m", {"nosuch": "1"}, InvalidRequestError),
        ("m", {"interval.ms": "99"}, InvalidRequestError),
        ("m", {"interval.ms": None}, InvalidRequestError),
        ("m", {"interval.ms": "soon"}, InvalidConfigError),
        ("m", {"match": "nosuch=x"}, InvalidConfigError),
        ("m", {"match": "client_id=("}, InvalidConfigError),
        ("m", {"match": "client_id"}, InvalidConfigError),
    ],
)
def test_subscriptions_that_cannot_be(name: str, settings: dict[str, str | None], error: type[KafkaError]) -> None:
    with pytest.raises(error):
        check_subscription(name, settings)
