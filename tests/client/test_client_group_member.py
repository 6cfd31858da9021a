"""A group member's part that is pure: ranges."""

from __future__ import annotations

from kafkalake.client.group_member import assign_ranges


def test_ranges_follow_the_ids_of_the_members_that_read_a_topic() -> None:
    subscriptions = {"m2": ["t", "u"], "m1": ["t"], "m3": ["t", "gone"]}
    assert assign_ranges(subscriptions, {"t": 7, "u": 2}) == {
        "m1": {"t": [0, 1, 2]},
        "m2": {"t": [3, 4], "u": [0, 1]},
        "m3": {"t": [5, 6]},
    }
    assert assign_ranges({"m1": ["t"], "m2": ["t"]}, {"t": 1}) == {"m1": {"t": [0]}, "m2": {}}
