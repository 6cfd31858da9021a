"""Why no voter of the controllers' quorum is added or removed by request: the registered nodes with that role are the voters.

With `kraft.version` 0, as in a new lake, the answers are Kafka's for a quorum whose voters are configured.
"""

from __future__ import annotations

from kafkalake.cluster.features import KRAFT_VERSION, level_of
from kafkalake.cluster.image import ClusterImage
from kafkalake.cluster.quorum import voters
from kafkalake.errors import (
    DuplicateVoterError,
    InvalidRequestError,
    KafkaError,
    UnsupportedVersionError,
    VoterNotFoundError,
)


def refuse_addition(image: ClusterImage, voter_id: int) -> KafkaError:
    """Return the error of a request that a voter be added."""
    if not level_of(image, KRAFT_VERSION):
        return UnsupportedVersionError("Cluster doesn't support adding voter because the kraft.version feature is 0")
    if voter_id in voters(image):
        return DuplicateVoterError(f"Broker {voter_id} is a voter already.")
    return InvalidRequestError("A broker becomes a voter when it registers: start one with this id on the lake.")


def refuse_removal(image: ClusterImage, voter_id: int) -> KafkaError:
    """Return the error of a request that a voter be removed."""
    if not level_of(image, KRAFT_VERSION):
        return UnsupportedVersionError("Cluster doesn't support removing voter because the kraft.version feature is 0")
    if voter_id not in voters(image):
        return VoterNotFoundError(f"Cannot remove voter {voter_id} from the set of voters {voters(image)}")
    return InvalidRequestError("A broker is a voter as long as it is registered: unregister it.")
