"""The requests and responses of one connection as bytes: versions, correlation ids, sizes. The connection itself is elsewhere.

`network.NodeConnection` has it for clients, `peer_connection.PeerConnection` between brokers.
"""

from __future__ import annotations

from typing import Generic, NamedTuple

from kafkalake import __version__
from kafkalake.buffers import Buffer
from kafkalake.client.requests import (
    API_VERSIONS,
    A,
    ClientApi,
    MalformedResponseError,
    Q,
    decode_response,
    encode_request,
)
from kafkalake.errors import UnsupportedVersionError, error_for_code
from kafkalake.wire.column_feature import FEATURE, LEVEL
from kafkalake.wire.messages.cluster import OWN_SOFTWARE, ApiVersionsRequest, ApiVersionsResponse
from kafkalake.wire.messages.records import ProduceRequest
from kafkalake.wire.produce_encoding import encode_produce

LARGEST_RESPONSE_BYTES = 256 * 1024 * 1024
_LARGEST_VERSIONS_BYTES = 1024 * 1024
SIZE_BYTES = 4
"""Length of the size before a frame."""


class Pending(NamedTuple, Generic[Q, A]):
    """A request that was encoded, by which its response is decoded."""

    api: ClientApi[Q, A]
    version: int
    correlation_id: int


class Exchange:
    """See the module. Versions are negotiated first: `ask_versions`, then `take_versions`, until that returns True."""

    def __init__(self, address: object, client_id: str) -> None:
        """`address`: of the broker, for messages."""
        self._address = address
        self._client_id = client_id
        self._next_correlation_id = 0
        self._versions = {API_VERSIONS.key: (API_VERSIONS.lowest, API_VERSIONS.highest)}
        self._has_versions = False
        self.features: dict[str, int] = {}
        """Finalized levels of the cluster's features by name, once the versions are known (KIP-584)."""
        self.takes_columns = False
        """Whether the broker takes batches of columns, once the versions are known."""

    def version(self, api: ClientApi[Q, A]) -> int:
        """Return the highest version of `api` that both sides support. Raise `UnsupportedVersionError` if there is none."""
        lowest, highest = self._versions.get(api.key, (0, -1))
        version = min(highest, api.highest)
        if version < max(lowest, api.lowest):
            offered = f"offers versions {lowest} to {highest}" if highest >= 0 else "does not offer it"
            raise UnsupportedVersionError(
                f"{api.name} versions {api.lowest} to {api.highest} are needed; the broker at {self._address} {offered}"
            )
        return version

    def offers(self, api: ClientApi[Q, A]) -> bool:
        """Return whether both sides support a version of `api`."""
        lowest, highest = self._versions.get(api.key, (0, -1))
        return min(highest, api.highest) >= max(lowest, api.lowest)

    def encode(self, api: ClientApi[Q, A], message: Q) -> tuple[Pending[Q, A], bytes]:
        """Return a request, and its frame with size. Raise `UnsupportedVersionError`."""
        version, correlation_id = self.version(api), self._next_id()
        frame = encode_request(api, version, correlation_id, self._client_id, message)
        return Pending(api, version, correlation_id), frame

    def encode_parts(self, api: ClientApi[Q, A], message: Q) -> tuple[Pending[Q, A], list[Buffer]]:
        """Do what `encode` does, without copying the record batches of a Produce request."""
        if not isinstance(message, ProduceRequest):
            pending, frame = self.encode(api, message)
            return pending, [frame]
        version, correlation_id = self.version(api), self._next_id()
        parts = encode_produce(version, correlation_id, self._client_id, message)
        return Pending(api, version, correlation_id), parts

    def decode(self, pending: Pending[Q, A], data: Buffer) -> A:
        """Return the response in a frame without its size. Raise `MalformedResponseError`."""
        return decode_response(pending.api, pending.version, pending.correlation_id, data)

    def _next_id(self) -> int:
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        return self._next_correlation_id

    def response_size(self, prefix: Buffer) -> int:
        """Return the size of a response, before which `prefix` came. Raise `MalformedResponseError` if no response has it."""
        size = int.from_bytes(prefix[:SIZE_BYTES], "big", signed=True)
        if not 4 <= size <= (LARGEST_RESPONSE_BYTES if self._has_versions else _LARGEST_VERSIONS_BYTES):
            raise MalformedResponseError(f"a response of {size} bytes")
        return size

    def ask_versions(self) -> tuple[Pending[ApiVersionsRequest, ApiVersionsResponse], bytes]:
        """Return a request for the broker's versions as `encode` does: the newest, or version 0 after a refusal (KIP-511)."""
        if self._versions[API_VERSIONS.key][1] == 0:
            return self.encode(API_VERSIONS, ApiVersionsRequest())
        about = ApiVersionsRequest(client_software_name=OWN_SOFTWARE, client_software_version=__version__)
        return self.encode(API_VERSIONS, about)

    def take_versions(self, pending: Pending[ApiVersionsRequest, ApiVersionsResponse], data: Buffer) -> bool:
        """Take over the broker's versions. Return False if it lacks the request's version: then `ask_versions` is next.

        A broker that lacks it responds in version 0. Raise `MalformedResponseError`, or the error that the broker responds with.
        """
        is_refusal = data[4:6] == UnsupportedVersionError.code.to_bytes(2, "big")
        version = 0 if is_refusal else pending.version
        answer = decode_response(API_VERSIONS, version, pending.correlation_id, data)
        if is_refusal and pending.version > 0:
            self._versions[API_VERSIONS.key] = (0, 0)
            return False
        if answer.error_code:
            raise error_for_code(answer.error_code, f"{self._address} refused to name its API versions")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self.features = {each.name: each.max_version_level for each in answer.finalized_features}
        self.takes_columns = any(
            each.name == FEATURE and each.max_version >= LEVEL for each in answer.supported_features
        )
        self._has_versions = True
        return True
