"""UpdateFeatures (KIP-584, KIP-778): change the levels of features, all of a request or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation
from kafkalog.server.settings.features import UPGRADE, Update

if TYPE_CHECKING:
    from kio.schema.update_features.v2.request import UpdateFeaturesRequest

    from kafkalog.server.node.node import Node

_FAILED: Final = "The update failed for all features since the following feature had an error: "


async def handle(node: Node, context: RequestContext, request: UpdateFeaturesRequest) -> Answer:
    """Change the features and return a row for each; after an error nothing has changed."""
    node.authorizer.require_cluster(context, Operation.ALTER)
    # version 0 has a flag for downgrades, which a controller ignores
    updates = [
        Update(one.feature, one.max_version_level, getattr(one, "upgrade_type", UPGRADE))
        for one in request.feature_updates
    ]
    refusal = await node.features.update(updates, getattr(request, "validate_only", False))
    if refusal is not None:
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, _FAILED + refusal)
    rows = [{"feature": one.feature, "error_code": ErrorCode.NONE, "error_message": "NONE"} for one in updates]
    return {"error_code": ErrorCode.NONE, "error_message": None, "results": rows}
