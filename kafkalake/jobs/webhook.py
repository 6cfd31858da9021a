"""Posts to a webhook. Many services treat its URL as a secret, so only scheme and host are ever shown."""

from __future__ import annotations

import http.client
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from kafkalake.errors import ConfigurationError, LakeError

TIMEOUT_S = 10.0
"""Total timeout, which also ends a response that arrives byte by byte."""

_ERRORS = (urllib.error.URLError, http.client.HTTPException, OSError, ValueError)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the operator chooses the address, not the server there."""

    def redirect_request(self, *_: object) -> None:
        return None


def webhook_url(given: str | None, file: Path | None) -> str | None:
    """Return the URL of the options `--webhook` and `--webhook-file`. Raise `ConfigurationError` if it is invalid."""
    if given is not None and file is not None:
        raise ConfigurationError("--webhook and --webhook-file: give one of them")
    option, url = "--webhook", given
    if file is not None:
        option = f"--webhook-file {file}"
        try:
            url = file.read_text().strip()
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{option} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if url is not None and not re.fullmatch(r"https?://[^/\s]+\S*", url):
        raise ConfigurationError(f"{option} is no URL: it begins with http:// or https:// and a host")
    return url


def shown(url: str) -> str:
    """Return the part of a webhook's URL that may be shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}"


def post(url: str, content: Mapping[str, object], timeout_s: float = TIMEOUT_S) -> None:
    """Send `content` as JSON. Raise `LakeError` if it is not accepted in time. Redirects are not followed."""
    failures: list[str] = []
    request = urllib.request.Request(
        url, json.dumps(content).encode(), {"Content-Type": "application/json", "User-Agent": "kafkalake"}
    )

    def send() -> None:
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout_s) as answer:
                answer.read(1)
        except _ERRORS as error:
            failures.append(_reason(error))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise LakeError(f"the webhook at {shown(url)} did not answer in {timeout_s:g} s")
    if failures:
        raise LakeError(f"the webhook at {shown(url)} did not take them: {failures[0]}")


def _reason(error: Exception) -> str:
    """Return the reason of a failure without the URL, which many of these texts contain."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP status {error.code}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return (
        (getattr(cause, "strerror", None) or type(cause).__name__)
        if isinstance(cause, OSError)
        else type(cause).__name__
    )
