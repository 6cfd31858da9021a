"""A webhook's URL is a secret: it is in no message; the server there names no other address and holds nobody up."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from kafkalake.errors import ConfigurationError, LakeError
from kafkalake.jobs.webhook import post, webhook_url


class Hook(BaseHTTPRequestHandler):
    paths: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.paths.append(self.path)
        self.send_response(302 if "redirect" in self.path else 500)
        self.send_header("Location", "/inside")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Hook.paths.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def refusal(url: str, timeout_s: float = 10.0) -> str:
    with pytest.raises(LakeError) as raised:
        post(url, {"alerts": []}, timeout_s)
    assert "SECRET" not in str(raised.value)
    return str(raised.value)


@pytest.mark.exhaustive
def test_no_failure_shows_more_than_scheme_and_host(server: str) -> None:
    assert refusal(f"{server}/services/SECRET") == "the webhook at http://127.0.0.1 did not take them: HTTP status 500"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert "Connection refused" in refusal(f"http://127.0.0.1:{port}/SECRET?SECRET")
    refusal("http://127.0.0.1:99999/SECRET")
    refusal("http://no-such-host.invalid/SECRET")


@pytest.mark.exhaustive
def test_a_redirect_is_not_followed(server: str) -> None:
    assert "HTTP status 302" in refusal(f"{server}/redirect/SECRET")
    assert Hook.paths == ["/redirect/SECRET"]


@pytest.mark.exhaustive
def test_a_server_that_answers_byte_by_byte_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                while not ended.wait(0.05):
                    try:
                        connection.send(b"H")
                    except OSError:
                        return

        threading.Thread(target=drip, daemon=True).start()
        began = time.monotonic()
        assert "did not answer in 0.5 s" in refusal(f"http://127.0.0.1:{listening.getsockname()[1]}/SECRET", 0.5)
        assert time.monotonic() - began < 5
        ended.set()


def test_the_url_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("https://example.org/services/SECRET\n")
    assert webhook_url(None, file) == "https://example.org/services/SECRET"
    assert webhook_url("https://example.org/x", None) == "https://example.org/x"
    assert webhook_url(None, None) is None
    for given, path in (
        ("SECRET", None),
        ("file:///SECRET", None),
        ("http:///SECRET", None),
        ("http://a/SECRET b", None),
    ):
        with pytest.raises(ConfigurationError, match="no URL") as raised:
            webhook_url(given, path)
        assert "SECRET" not in str(raised.value)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        webhook_url(None, tmp_path / "none")
    with pytest.raises(ConfigurationError, match="one of them"):
        webhook_url("https://example.org/x", file)
