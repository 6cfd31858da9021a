"""UpdateFeatures (57), versions 0-2: levels of features (`cluster/features.py`), which the controller commits.

An update to the level that a feature has changes nothing and succeeds. 1: types of upgrade, `validate_only`. 2: one error for all.
With an error none is updated.
"""

from __future__ import annotations

from kafkalake.cluster.features import FeatureUpdate, check_update, update_features
from kafkalake.errors import ClusterAuthorizationError, InvalidUpdateVersionError, KafkaError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


async def handle(request: Request[UpdateFeaturesRequest]) -> UpdateFeaturesResponse:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return UpdateFeaturesResponse(error_code=ClusterAuthorizationError.code)
    broker, body = request.context.broker, request.body
    errors: dict[str, str | None] = {}
    for each in body.feature_updates:
        try:
            check_update(broker.cluster, FeatureUpdate(each.feature, each.max_version_level, each.upgrade_type))
            errors[each.feature] = None
        except InvalidUpdateVersionError as error:
            errors[each.feature] = request.error_text(error)
        await request.turn()
    refused = next((each for each in errors.values() if each is not None), None)
    if refused is None and not body.validate_only:
        levels = {each.feature: each.max_version_level for each in body.feature_updates}
        try:
            await broker.controller.change(lambda image: update_features(image, levels), [])
        except KafkaError as failed:
            return UpdateFeaturesResponse(error_code=failed.code, error_message=request.error_text(failed))
    if request.version >= 2:
        return _one_error(refused)
    return UpdateFeaturesResponse(
        results=[
            UpdatableFeatureResult(
                feature=feature, error_code=0 if each is None else InvalidUpdateVersionError.code, error_message=each
            )
            for feature, each in errors.items()
        ]
    )


def _one_error(reason: str | None) -> UpdateFeaturesResponse:
    if reason is None:
        return UpdateFeaturesResponse()
    return UpdateFeaturesResponse(
        error_code=InvalidUpdateVersionError.code,
        error_message=f"The update failed for all features since the following feature had an error: {reason}",
    )


def refusal(body: UpdateFeaturesRequest, code: int, message: str) -> UpdateFeaturesResponse:
    """Return the response that refuses all of a request."""
    return UpdateFeaturesResponse(error_code=code, error_message=message)
