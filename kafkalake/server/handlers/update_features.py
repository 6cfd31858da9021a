"""UpdateFeatures (57), versions 0-2: the levels of features are those of this release; another level is refused.

An update to the level that a feature has changes nothing and succeeds. 1: types of upgrade, `validate_only`. 2: one error for all.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.errors import ClusterAuthorizationError, InvalidUpdateVersionError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.handlers.api_versions import FEATURES
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


def handle(request: Request[UpdateFeaturesRequest]) -> Generator[None, None, UpdateFeaturesResponse]:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return UpdateFeaturesResponse(error_code=ClusterAuthorizationError.code)
    refusals = {}
    for update in request.body.feature_updates:
        refusals[update.feature] = _refusal(request, update)
        yield
    if request.version >= 2:
        return _one_error(refusals)
    results = []
    for feature, refusal in refusals.items():
        code = 0 if refusal is None else InvalidUpdateVersionError.code
        results.append(UpdatableFeatureResult(feature=feature, error_code=code, error_message=refusal))
        yield
    return UpdateFeaturesResponse(results=results)


def _one_error(refusals: dict[str, str | None]) -> UpdateFeaturesResponse:
    refusal = next((each for each in refusals.values() if each is not None), None)
    if refusal is None:
        return UpdateFeaturesResponse()
    return UpdateFeaturesResponse(
        error_code=InvalidUpdateVersionError.code,
        error_message=f"The update failed for all features since the following feature had an error: {refusal}",
    )


def _refusal(request: Request[UpdateFeaturesRequest], update: FeatureUpdateKey) -> str | None:
    """Return why the update is refused, or None."""
    controller_id, level = request.context.broker.cluster.controller_id, update.max_version_level
    supported = FEATURES.get(update.feature)
    begin = f"Invalid update version {level} for feature {update.feature}."
    if supported is None:
        return f"{begin} Local controller {controller_id} does not support this feature."
    if level == supported:
        return None
    if level > supported or level < 0:
        return f"{begin} Local controller {controller_id} only supports versions 0-{supported}"
    if update.upgrade_type == 1:
        return (
            f"{begin} Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade."
        )
    return f"{begin} This release has no other level."


def refusal(body: UpdateFeaturesRequest, code: int, message: str) -> UpdateFeaturesResponse:
    """Return the response that refuses all of a request."""
    return UpdateFeaturesResponse(error_code=code, error_message=message)
