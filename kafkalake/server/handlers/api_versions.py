"""ApiVersions (18), versions 0-4: the APIs of this broker and their versions.

- 3: name and version of the client software (KIP-511). A malformed name gets INVALID_REQUEST.
- 3: features (KIP-584, `cluster/features.py`): `transaction.version` 2 makes clients use KIP-890, `group.version` 1 announces
  groups of the consumer protocol (KIP-848). 4: supported features with a lowest version of 0 too.
- kafkalake's own software finds among the supported features that of batches of columns (`wire/column_batch.py`).
- At a listener of controllers: their APIs. Elsewhere only kafkalake's own software finds those between brokers, as no other client
  has a use for them.
- An unsupported version gets a version-0 response with UNSUPPORTED_VERSION and the list, so that the client can retry
  (KIP-511).
"""

from __future__ import annotations

import re
from typing import Any

from kafkalake.cluster.features import FEATURES, levels_of
from kafkalake.errors import InvalidRequestError, UnsupportedVersionError
from kafkalake.server.context import ListedApis
from kafkalake.server.request import Request
from kafkalake.wire.column_feature import FEATURE, LEVEL
from kafkalake.wire.messages.cluster import (
    OWN_SOFTWARE,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_OWN_FEATURES = [SupportedFeatureKey(name=FEATURE, min_version=LEVEL, max_version=LEVEL)]
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(request: Request[ApiVersionsRequest]) -> ApiVersionsResponse:
    if request.version >= 3:
        name, version = request.body.client_software_name, request.body.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=InvalidRequestError.code)
    is_own = request.version >= 3 and request.body.client_software_name == OWN_SOFTWARE
    cluster, listed = request.context.broker.cluster, _listed(request)
    return ApiVersionsResponse(
        api_keys=listed.nodes if is_own else listed.clients,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=each.lowest, max_version=each.highest)
            for name, each in FEATURES.items()
            if request.version >= 4 or each.lowest
        ]
        + (_OWN_FEATURES if is_own else []),
        finalized_features_epoch=cluster.version,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels_of(cluster)
            if level
        ],
    )


def unsupported_version(request: Request[object]) -> ApiVersionsResponse:
    """Return the response, in version 0, to an unsupported version."""
    return ApiVersionsResponse(error_code=UnsupportedVersionError.code, api_keys=_listed(request).clients)


def _listed(request: Request[Any]) -> ListedApis:
    return request.context.advertised.at(request.connection.listener)
