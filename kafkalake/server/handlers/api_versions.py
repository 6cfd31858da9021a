"""ApiVersions (18), versions 0-4: which APIs this broker serves, in which versions.

- 3: the client says which software it is (KIP-511); a malformed name gets INVALID_REQUEST.
- 3: features (KIP-584): `transaction.version` 2 has clients use KIP-890, `group.version` 1 says that groups of the consumer
  protocol are there (KIP-848). 4: supported features with a lowest version of 0 too.
- A version that is not supported gets a version-0 answer with UNSUPPORTED_VERSION and the list, so that the client can ask
  again (KIP-511).
"""

from __future__ import annotations

import re
from typing import Any

from kafkalake.errors import InvalidRequestError, UnsupportedVersionError
from kafkalake.server.request import Request

FEATURES = {"group.version": 1, "transaction.version": 2}
"""Features of the cluster and their level; each is supported from 0 on."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(request: Request) -> dict[str, Any]:
    if request.version >= 3:
        name, version = request.body.client_software_name, request.body.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return {"error_code": InvalidRequestError.code}
        request.connection.client_software = f"{name} {version}"
    return {
        "error_code": 0,
        "api_keys": request.context.advertised_apis,
        "supported_features": [
            {"name": name, "min_version": 0, "max_version": level} for name, level in FEATURES.items()
        ]
        if request.version >= 4
        else [],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level} for name, level in FEATURES.items()
        ],
    }


def unsupported_version(request: Request) -> dict[str, Any]:
    """The answer, in version 0, to a version that we do not know."""
    return {"error_code": UnsupportedVersionError.code, "api_keys": request.context.advertised_apis}
