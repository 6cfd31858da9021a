"""Messages about who may do what: access control lists, delegation tokens, SCRAM credentials."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalake.buffers import Buffer
from kafkalake.wire.messages.message import Message, Response


class DescribeAclsRequest(Message):
    resource_type_filter: int = 0
    resource_name_filter: str | None = None
    pattern_type_filter: int = 3
    principal_filter: str | None = None
    host_filter: str | None = None
    operation: int = 0
    permission_type: int = 0


class AclDescription(Message):
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class DescribeAclsResource(Message):
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    acls: Sequence[AclDescription] = ()


class DescribeAclsResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    resources: Sequence[DescribeAclsResource] = ()


class AclCreation(Message):
    resource_type: int = 0
    resource_name: str = ""
    resource_pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class CreateAclsRequest(Message):
    creations: Sequence[AclCreation] = ()


class AclCreationResult(Message):
    error_code: int = 0
    error_message: str | None = None


class CreateAclsResponse(Response):
    results: Sequence[AclCreationResult] = ()


class DeleteAclsFilter(Message):
    resource_type_filter: int = 0
    resource_name_filter: str | None = None
    pattern_type_filter: int = 3
    principal_filter: str | None = None
    host_filter: str | None = None
    operation: int = 0
    permission_type: int = 0


class DeleteAclsRequest(Message):
    filters: Sequence[DeleteAclsFilter] = ()


class DeleteAclsMatchingAcl(Message):
    error_code: int = 0
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class DeleteAclsFilterResult(Message):
    error_code: int = 0
    error_message: str | None = None
    matching_acls: Sequence[DeleteAclsMatchingAcl] = ()


class DeleteAclsResponse(Response):
    filter_results: Sequence[DeleteAclsFilterResult] = ()


class CreatableRenewers(Message):
    principal_type: str = ""
    principal_name: str = ""


class CreateDelegationTokenRequest(Message):
    renewers: Sequence[CreatableRenewers] = ()
    max_lifetime: int = 0
    owner_principal_type: str | None = None
    owner_principal_name: str | None = None


class CreateDelegationTokenResponse(Response):
    error_code: int = 0
    principal_type: str = ""
    principal_name: str = ""
    issue_timestamp: int = 0
    expiry_timestamp: int = 0
    max_timestamp: int = 0
    token_id: str = ""
    hmac: Buffer = b""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""


class RenewDelegationTokenRequest(Message):
    hmac: Buffer = b""
    renew_period: int = 0


class RenewDelegationTokenResponse(Response):
    error_code: int = 0
    expiry_timestamp: int = 0


class ExpireDelegationTokenRequest(Message):
    hmac: Buffer = b""
    expiry_time_period: int = 0


class ExpireDelegationTokenResponse(Response):
    error_code: int = 0
    expiry_timestamp: int = 0


class DescribeDelegationTokenOwner(Message):
    principal_type: str = ""
    principal_name: str = ""


class DescribeDelegationTokenRequest(Message):
    owners: Sequence[DescribeDelegationTokenOwner] | None = ()


class DescribedDelegationTokenRenewer(Message):
    principal_type: str = ""
    principal_name: str = ""


class DescribedDelegationToken(Message):
    principal_type: str = ""
    principal_name: str = ""
    issue_timestamp: int = 0
    expiry_timestamp: int = 0
    max_timestamp: int = 0
    token_id: str = ""
    hmac: Buffer = b""
    renewers: Sequence[DescribedDelegationTokenRenewer] = ()
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""


class DescribeDelegationTokenResponse(Response):
    error_code: int = 0
    tokens: Sequence[DescribedDelegationToken] = ()


class ScramUserName(Message):
    name: str = ""


class DescribeUserScramCredentialsRequest(Message):
    users: Sequence[ScramUserName] | None = ()


class ScramCredentialInfo(Message):
    mechanism: int = 0
    iterations: int = 0


class DescribeUserScramCredentialsResult(Message):
    user: str = ""
    error_code: int = 0
    error_message: str | None = None
    credential_infos: Sequence[ScramCredentialInfo] = ()


class DescribeUserScramCredentialsResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    results: Sequence[DescribeUserScramCredentialsResult] = ()


class ScramCredentialDeletion(Message):
    name: str = ""
    mechanism: int = 0


class ScramCredentialUpsertion(Message):
    name: str = ""
    mechanism: int = 0
    iterations: int = 0
    salt: Buffer = b""
    salted_password: Buffer = b""


class AlterUserScramCredentialsRequest(Message):
    deletions: Sequence[ScramCredentialDeletion] = ()
    upsertions: Sequence[ScramCredentialUpsertion] = ()


class AlterUserScramCredentialsResult(Message):
    user: str = ""
    error_code: int = 0
    error_message: str | None = None


class AlterUserScramCredentialsResponse(Response):
    results: Sequence[AlterUserScramCredentialsResult] = ()


class SaslHandshakeRequest(Message):
    mechanism: str = ""


class SaslHandshakeResponse(Response):
    error_code: int = 0
    mechanisms: Sequence[str] = ()


class SaslAuthenticateRequest(Message):
    auth_bytes: Buffer = b""


class SaslAuthenticateResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    auth_bytes: Buffer = b""
    session_lifetime: int = 0
