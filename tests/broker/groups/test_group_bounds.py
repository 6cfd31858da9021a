"""What grows in the memory of the group coordinator has a limit: for each member, for a group, and in sum."""

from __future__ import annotations

from broker.groups.coordination import Cluster
from broker.groups.scenario import DELAY_MS

from kafkalake.broker.groups.requests import GroupProtocol
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    MemberIdRequiredError,
)

NOT_REQUIRED = {"member_id_required": False}


def saying(size: int) -> dict[str, object]:
    """The changes to a join whose member says so many bytes of itself."""
    return {"protocols": (GroupProtocol("range", bytes(size - len("range"))),), "member_id_required": False}


def test_a_member_says_no_more_of_itself_than_is_allowed() -> None:
    c = Cluster(group_member_metadata_max_bytes=1_000)
    assert c.join("g", **saying(1_001))[0].error is InvalidRequestError
    assert len(c.coordinator.table) == 0
    c.join("g", **saying(1_000))
    c.advance(DELAY_MS)
    assert c.coordinator.describe_group("g").state == "CompletingRebalance"


def test_the_members_of_a_group_and_of_all_groups_have_a_limit_before_they_sync() -> None:
    c = Cluster(group_metadata_max_bytes=2_500, group_coordinator_metadata_max_bytes=4_000)
    for _ in range(2):
        c.join("g", **saying(1_000))
    assert c.join("g", **saying(1_000))[0].error is GroupMaxSizeReachedError
    c.join("other", **saying(1_000))
    assert c.join("third", **saying(1_001))[0].error is CoordinatorNotAvailableError
    c.join("third", **saying(1_000))
    c.advance(600_000)  # nobody syncs: all are gone, and so is what they said
    for group in ("fourth", "fifth"):
        assert c.join(group, **saying(2_000)) == []


def test_a_member_that_comes_again_counts_once() -> None:
    c = Cluster(group_coordinator_metadata_max_bytes=1_000)
    joined = c.join("g", **saying(1_000))
    c.advance(DELAY_MS)
    member_id = joined[0].member_id
    for size in (900, 1_000, 950):
        again = c.join("g", member_id, **saying(size))
        c.advance(DELAY_MS)
        assert again[0].error is None


def test_members_that_were_given_an_id_and_never_come_have_a_limit() -> None:
    c = Cluster()
    for _ in range(10_000):
        assert c.join("g")[0].error is MemberIdRequiredError
    assert c.join("g")[0].error is GroupMaxSizeReachedError


def test_groups_have_a_limit() -> None:
    c = Cluster(group_coordinator_groups_max=2)
    c.stable_member("one")
    c.join("two")
    assert c.join("three")[0].error is CoordinatorNotAvailableError
    assert c.beat("four", "m", 0)[0].error is CoordinatorNotAvailableError
    assert c.beat("two", "m", 0)[0].error is None


def test_a_subscription_of_the_consumer_protocol_is_bounded() -> None:
    c = Cluster(group_member_metadata_max_bytes=1_000)
    assert c.beat("g", "m", 0, topics=("t" * 249,) * 5)[0].error is InvalidRequestError
    assert c.beat("g", "m", 0, regex="(a|" * 300 + ")" * 300)[0].error is InvalidRequestError
    assert c.beat("g", "m", 0, topics=("clicks",))[0].error is None


def test_members_of_the_consumer_protocol_have_the_same_limits() -> None:
    c = Cluster(group_metadata_max_bytes=2_500, group_coordinator_metadata_max_bytes=4_000)
    for member in ("a", "b"):
        assert c.beat("g", member, 0, topics=("t" * 1_000,))[0].error is None
    assert c.beat("g", "c", 0, topics=("t" * 1_000,))[0].error is GroupMaxSizeReachedError
    c.join("classic", **saying(1_500))
    assert c.beat("other", "a", 0, topics=("t" * 600,))[0].error is CoordinatorNotAvailableError
    assert c.beat("g", "a", -1)[0].error is None
    assert c.beat("other", "a", 0, topics=("t" * 600,))[0].error is None
    c.start()
    assert c.beat("third", "a", 0, topics=("t" * 2_390,))[0].error is None
    assert c.beat("fourth", "a", 0, topics=("t" * 2_390,))[0].error is CoordinatorNotAvailableError
