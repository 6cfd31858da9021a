"""The classic protocol's automaton: join rounds, assignments, sessions, static members, errors."""

from __future__ import annotations

import pytest
from broker.groups.scenario import DELAY_MS, REBALANCE_MS, SESSION_MS, Scenario, protocols

from kafkalake.broker.groups.classic_description import describe, summary
from kafkalake.broker.groups.classic_state import JOIN_TIMER, ClassicState
from kafkalake.broker.groups.records import GroupRecord
from kafkalake.broker.groups.requests import LeavingMember
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


def test_a_first_join_is_given_a_member_id_to_come_back_with() -> None:
    s = Scenario()
    first = s.joined(s.join())
    assert first.error is MemberIdRequiredError
    assert first.member_id == "client-1"
    waiter = s.join(first.member_id)
    assert waiter not in s.replies
    s.advance(DELAY_MS - 1)
    assert waiter not in s.replies
    s.advance(1)
    joined = s.joined(waiter)
    assert (joined.error, joined.generation_id, joined.leader, joined.protocol_name) == (None, 1, "client-1", "range")
    assert [member.member_id for member in joined.members] == ["client-1"]
    assert s.group.state is ClassicState.COMPLETING_REBALANCE


def test_an_old_client_joins_without_the_detour() -> None:
    s = Scenario()
    waiter = s.join(member_id_required=False)
    s.advance(DELAY_MS)
    assert s.joined(waiter).error is None


def test_a_given_member_id_is_forgotten_after_its_session() -> None:
    s = Scenario()
    member_id = s.new_member_id()
    s.advance(SESSION_MS)
    assert s.joined(s.join(member_id)).error is UnknownMemberIdError


def test_newcomers_extend_the_initial_wait_up_to_the_rebalance_timeout() -> None:
    s = Scenario()
    waiters = [s.join(s.new_member_id(), rebalance_timeout_ms=7_000)]
    for _ in range(2):
        s.advance(DELAY_MS - 1)
        waiters.append(s.join(s.new_member_id(), rebalance_timeout_ms=7_000))
        s.advance(1)
    assert not any(waiter in s.replies for waiter in waiters)
    s.advance(1_000)
    assert [s.joined(waiter).generation_id for waiter in waiters] == [1, 1, 1]


def test_the_leader_hears_of_all_members_and_followers_of_none() -> None:
    s = Scenario()
    a, b = s.new_member_id(), s.new_member_id()
    first, second = s.join(a), s.join(b)
    s.advance(2 * DELAY_MS)
    assert [m.member_id for m in s.joined(first).members] == [a, b]
    assert s.joined(second).members == ()
    assert s.joined(second).leader == a


def test_assignments_go_out_when_they_are_durable() -> None:
    s = Scenario()
    a, b = s.new_member_id(), s.new_member_id()
    s.join(a)
    s.join(b)
    s.advance(2 * DELAY_MS)
    s.hold_appends = True
    follower = s.sync(b)
    leader = s.sync(a, {a: b"0", b: b"1"})
    assert follower not in s.replies
    assert leader not in s.replies
    assert s.group.state is ClassicState.COMPLETING_REBALANCE
    s.durable()
    assert s.group.state is ClassicState.STABLE
    assert (s.synced(leader).assignment, s.synced(follower).assignment) == (b"0", b"1")
    record = s.written[-1]
    assert isinstance(record, GroupRecord)
    assert [(m.member_id, m.assignment) for m in record.members] == [(a, b"0"), (b, b"1")]


def test_assignments_that_cannot_be_written_are_withdrawn_and_members_rejoin() -> None:
    s = Scenario()
    a = s.new_member_id()
    s.join(a)
    s.advance(DELAY_MS)
    s.hold_appends = True
    waiter = s.sync(a, {a: b"0"})
    s.fail(NotCoordinatorError)
    assert s.synced(waiter).error is NotCoordinatorError
    assert s.group.state is ClassicState.PREPARING_REBALANCE
    with pytest.raises(RebalanceInProgressError):
        s.heartbeat(a)
    s.hold_appends = False
    assert s.joined(s.join(a)).generation_id == 2


def test_a_late_append_of_an_older_generation_changes_nothing() -> None:
    s = Scenario()
    a = s.new_member_id()
    s.join(a)
    s.advance(DELAY_MS)
    s.hold_appends = True
    waiter = s.sync(a, {a: b"old"})
    s.join(a, protocols=protocols("range", "sticky"))
    assert s.synced(waiter).error is RebalanceInProgressError
    s.durable()
    assert s.group.state is ClassicState.COMPLETING_REBALANCE
    assert s.group.generation_id == 2
    current = s.sync(a, {a: b"new"})
    s.durable()
    assert s.synced(current).assignment == b"new"


def test_a_member_that_forgets_to_assign_leaves_others_with_an_empty_assignment() -> None:
    s = Scenario()
    a, b = s.stable(None, None)
    s.join(a)
    s.join(b)
    s.sync(a, {a: b"all"})
    assert s.synced(s.sync(b)).assignment == b""


def test_a_new_member_makes_the_others_rejoin() -> None:
    s = Scenario()
    a = s.stable()[0]
    b = s.new_member_id()
    newcomer = s.join(b)
    assert newcomer not in s.replies
    with pytest.raises(RebalanceInProgressError):
        s.heartbeat(a)
    again = s.join(a)
    assert s.joined(again).generation_id == s.joined(newcomer).generation_id == 2
    assert s.joined(again).leader == a


def test_members_that_do_not_rejoin_in_the_rebalance_timeout_are_out() -> None:
    s = Scenario()
    a = s.stable()[0]
    newcomer = s.join(s.new_member_id())
    for _ in range(REBALANCE_MS // 5_000):
        assert newcomer not in s.replies
        with pytest.raises(RebalanceInProgressError):
            s.heartbeat(a, 1)
        s.advance(5_000)
    assert s.joined(newcomer).error is None
    assert s.joined(newcomer).leader == s.joined(newcomer).member_id
    with pytest.raises(UnknownMemberIdError):
        s.heartbeat(a)


def test_a_pending_member_holds_up_a_rebalance_until_it_joins_or_its_id_expires() -> None:
    s = Scenario()
    a = s.stable()[0]
    s.new_member_id()
    again = s.join(a)
    assert again not in s.replies
    s.advance(SESSION_MS)
    assert s.joined(again).generation_id == 2


def test_a_member_that_never_syncs_is_out_after_the_rebalance_timeout() -> None:
    s = Scenario()
    a, b = s.new_member_id(), s.new_member_id()
    s.join(a)
    s.join(b)
    s.advance(2 * DELAY_MS)
    s.sync(a, {a: b"0", b: b"1"})
    elapsed = 0
    while elapsed < REBALANCE_MS - DELAY_MS:
        s.heartbeat(a)
        s.heartbeat(b)
        s.advance(5_000)
        elapsed += 5_000
        if s.group.state is not ClassicState.STABLE:
            break
    assert s.group.state is ClassicState.PREPARING_REBALANCE
    with pytest.raises(UnknownMemberIdError):
        s.heartbeat(b)


def test_a_silent_member_is_out_after_its_session_and_the_others_rebalance() -> None:
    s = Scenario()
    a, b = s.stable(None, None)
    s.heartbeat(b)
    for _ in range(2):
        s.advance(SESSION_MS // 2 - 1)
        s.heartbeat(a)
    assert s.group.state is ClassicState.STABLE
    s.advance(2)
    assert s.group.state is ClassicState.PREPARING_REBALANCE
    assert b not in s.group.roster
    joined = s.joined(s.join(a))
    assert (joined.generation_id, len(joined.members)) == (2, 1)


def test_a_member_that_falls_silent_right_after_the_join_round_is_out_after_its_session() -> None:
    s = Scenario()
    a, b = s.new_member_id(), s.new_member_id()
    s.join(a)
    s.join(b)
    s.advance(2 * DELAY_MS)
    s.sync(a, {a: b"0", b: b"1"})
    s.sync(b)
    s.heartbeat(a)
    s.advance(SESSION_MS - 1)
    assert b in s.group.roster
    s.advance(1)
    assert b not in s.group.roster


def test_heartbeats_move_the_deadline_without_setting_timers() -> None:
    s = Scenario()
    a = s.stable()[0]
    for _ in range(100):
        s.advance(SESSION_MS - 1)
        s.group.heartbeat(a, 1)
        assert s.group.decisions == []
    s.advance(SESSION_MS - 1)
    assert s.group.state is ClassicState.STABLE
    s.advance(1)
    assert s.group.state is ClassicState.EMPTY


def test_the_last_member_gone_empties_the_group_with_a_new_generation_in_the_journal() -> None:
    s = Scenario()
    a = s.stable()[0]
    assert s.group.leave([LeavingMember(a)])[0].error is None
    s.run()
    assert s.group.state is ClassicState.EMPTY
    assert s.group.generation_id == 2
    record = s.written[-1]
    assert isinstance(record, GroupRecord)
    assert (record.members, record.generation_id, record.protocol_type) == ((), 2, "consumer")
    assert s.timers == {}


def test_a_follower_that_rejoins_unchanged_hears_the_generation_again() -> None:
    s = Scenario()
    _, b = s.stable(None, None)
    assert s.joined(s.join(b)).generation_id == 1
    assert s.group.state is ClassicState.STABLE


def test_a_leader_that_rejoins_rebalances() -> None:
    s = Scenario()
    a, _ = s.stable(None, None)
    waiter = s.join(a)
    assert waiter not in s.replies
    assert s.group.state is ClassicState.PREPARING_REBALANCE


def test_a_follower_with_a_changed_subscription_rebalances() -> None:
    s = Scenario()
    _, b = s.stable(None, None)
    s.join(b, protocols=protocols("range", topic="views"))
    assert s.group.state is ClassicState.PREPARING_REBALANCE


def test_the_protocol_that_all_know_and_most_prefer_is_chosen() -> None:
    s = Scenario()
    lists = [("range", "sticky", "roundrobin"), ("sticky", "range"), ("sticky", "roundrobin", "range")]
    waiters = [s.join(s.new_member_id(), protocols=protocols(*names)) for names in lists]
    s.advance(4 * DELAY_MS)
    assert {s.joined(waiter).protocol_name for waiter in waiters} == {"sticky"}


@pytest.mark.parametrize(
    "changes",
    [
        {"protocols": protocols("sticky")},
        {"protocol_type": "connect"},
        {"protocols": ()},
        {"protocol_type": ""},
    ],
)
def test_a_member_that_shares_no_protocol_is_refused(changes: dict[str, object]) -> None:
    s = Scenario()
    s.stable()
    assert s.joined(s.join(**changes)).error is InconsistentGroupProtocolError
    assert s.group.state is ClassicState.STABLE


@pytest.mark.parametrize("changes", [{"protocols": ()}, {"protocol_type": ""}])
def test_a_first_member_without_protocols_is_refused(changes: dict[str, object]) -> None:
    assert (s := Scenario()).joined(s.join(**changes)).error is InconsistentGroupProtocolError


def test_an_emptied_group_accepts_another_protocol_type() -> None:
    s = Scenario()
    a = s.stable()[0]
    s.group.leave([LeavingMember(a)])
    s.run()
    waiter = s.join(member_id_required=False, protocol_type="connect", protocols=protocols("default"))
    s.advance(DELAY_MS)
    assert s.joined(waiter).protocol_type == "connect"


def test_a_full_group_refuses_newcomers_and_keeps_its_members() -> None:
    s = Scenario(group_max_size=2)
    a, _ = s.stable(None, None)
    refused = s.joined(s.join())
    assert (refused.error, refused.member_id) == (GroupMaxSizeReachedError, "")
    s.heartbeat(a)


def test_places_in_a_rebalance_go_to_those_who_come_first() -> None:
    s = Scenario(group_max_size=1)
    a, b = s.new_member_id(), s.new_member_id()
    s.join(a)
    assert s.joined(s.join(b)).error is GroupMaxSizeReachedError
    s.advance(2 * DELAY_MS)
    assert s.group.state is ClassicState.COMPLETING_REBALANCE


def test_a_join_repeated_while_the_first_waits_answers_the_first() -> None:
    s = Scenario()
    a, _ = s.stable(None, None)
    first = s.join(a)
    second = s.join(a)
    assert s.joined(first).error is RebalanceInProgressError
    assert second not in s.replies


def test_a_new_member_may_wait_five_minutes_and_is_then_told_to_begin_again() -> None:
    s = Scenario(group_new_member_join_timeout_ms=30_000)
    a = s.stable("one")[0]
    newcomer = s.join(s.new_member_id(), rebalance_timeout_ms=600_000)
    for _ in range(6):
        with pytest.raises(RebalanceInProgressError):
            s.heartbeat(a, 1, "one")
        s.advance(5_000)
    assert s.joined(newcomer).error is UnknownMemberIdError


# Checks


@pytest.mark.parametrize(
    ("member", "generation", "instance", "error"),
    [
        ("nobody", 1, None, UnknownMemberIdError),
        ("own", 0, None, IllegalGenerationError),
        ("own", 2, None, IllegalGenerationError),
        ("own", 1, "unknown instance", UnknownMemberIdError),
        ("other", 1, "one", FencedInstanceIdError),
    ],
)
def test_a_wrong_member_generation_or_instance_is_refused(
    member: str, generation: int, instance: str | None, error: type[KafkaError]
) -> None:
    s = Scenario()
    ids = s.stable("one", None)
    own = s.group.roster.static_member_id("one")
    other = next(one for one in ids if one != own)
    member_id = {"own": str(own), "other": other}.get(member, member)
    with pytest.raises(error):
        s.heartbeat(member_id, generation, instance)
    assert s.synced(s.sync(member_id, generation_id=generation, group_instance_id=instance)).error is error
    with pytest.raises(error):
        s.group.check_commit(member_id, instance, generation)
    assert s.group.state is ClassicState.STABLE


def test_a_sync_with_another_protocol_is_refused() -> None:
    s = Scenario()
    a = s.stable()[0]
    assert s.synced(s.sync(a, protocol_type="connect")).error is InconsistentGroupProtocolError
    assert s.synced(s.sync(a, protocol_name="sticky")).error is InconsistentGroupProtocolError
    assert s.synced(s.sync(a, protocol_type="consumer", protocol_name="range")).error is None


def test_a_sync_during_the_join_round_is_told_to_rejoin() -> None:
    s = Scenario()
    a, _ = s.stable(None, None)
    s.join(a)
    assert s.synced(s.sync(a)).error is RebalanceInProgressError


def test_commits_are_refused_between_join_and_sync_and_keep_the_session_otherwise() -> None:
    s = Scenario()
    a = s.new_member_id()
    s.join(a)
    s.advance(DELAY_MS)
    with pytest.raises(RebalanceInProgressError):
        s.group.check_commit(a, None, 1)
    s.group.check_commit(a, None, 1, transactional=True)
    s.sync(a, {a: b"0"})
    for _ in range(5):
        s.advance(SESSION_MS - 1)
        s.group.check_commit(a, None, 1)
    assert s.group.state is ClassicState.STABLE


def test_outsiders_commit_to_an_empty_group_only() -> None:
    s = Scenario()
    s.group.check_commit("", None, -1)
    s.group.check_commit("anyone", None, -1)
    a = s.stable()[0]
    with pytest.raises(UnknownMemberIdError):
        s.group.check_commit("", None, -1)
    s.group.check_commit("", None, -1, transactional=True)
    s.group.leave([LeavingMember(a)])
    s.run()
    s.group.check_commit("", None, -1)
    with pytest.raises(UnknownMemberIdError):
        s.group.check_commit(a, None, 1)


# Leaving


def test_leaving_in_a_batch_answers_each_member_by_itself() -> None:
    s = Scenario()
    ids = s.stable("one", None, None)
    static = str(s.group.roster.static_member_id("one"))
    dynamic = [one for one in ids if one != static]
    pending = s.new_member_id()
    results = s.group.leave(
        [
            LeavingMember("", "one"),
            LeavingMember("", "two"),
            LeavingMember(dynamic[0]),
            LeavingMember("nobody"),
            LeavingMember(pending),
        ]
    )
    s.run()
    assert [result.error for result in results] == [None, UnknownMemberIdError, None, UnknownMemberIdError, None]
    assert s.group.state is ClassicState.PREPARING_REBALANCE
    assert s.joined(s.join(dynamic[1])).generation_id == 2


def test_leaving_with_the_id_of_an_older_incarnation_is_fenced() -> None:
    s = Scenario()
    old = s.stable("one")[0]
    s.join(group_instance_id="one")
    assert s.group.leave([LeavingMember(old, "one")])[0].error is FencedInstanceIdError


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    s = Scenario()
    a, b = s.stable(None, None)
    waiter = s.join(b, protocols=protocols("range", topic="views"))
    s.group.leave([LeavingMember(b)])
    s.run()
    assert s.joined(waiter).error is UnknownMemberIdError
    assert s.joined(s.join(a)).generation_id == 2


def test_a_member_whose_sync_waits_is_answered_when_it_leaves() -> None:
    s = Scenario()
    a, b = s.new_member_id(), s.new_member_id()
    s.join(a)
    s.join(b)
    s.advance(2 * DELAY_MS)
    waiter = s.sync(b)
    s.group.leave([LeavingMember(b)])
    s.run()
    assert s.synced(waiter).error is UnknownMemberIdError


# Static members


def test_a_static_member_that_comes_back_takes_its_place_without_a_rebalance() -> None:
    s = Scenario()
    ids = s.stable("one", "two")
    follower = ids[1]
    instance = next(m.group_instance_id for m in s.group.roster if m.member_id == follower)
    s.hold_appends = True
    waiter = s.join(group_instance_id=instance)
    assert waiter not in s.replies
    s.durable()
    back = s.joined(waiter)
    assert (back.error, back.generation_id, back.leader, back.members, back.skip_assignment) == (
        None,
        1,
        ids[0],
        (),
        False,
    )
    assert back.member_id != follower
    assert s.group.state is ClassicState.STABLE
    assert s.synced(s.sync(back.member_id)).assignment == f"part of {follower}".encode()
    with pytest.raises(FencedInstanceIdError):
        s.heartbeat(follower, 1, instance)
    record = s.written[-1]
    assert isinstance(record, GroupRecord)
    assert back.member_id in {m.member_id for m in record.members}


def test_a_static_leader_that_comes_back_leads_but_need_not_assign() -> None:
    s = Scenario()
    ids = s.stable("one", "two")
    instance = next(m.group_instance_id for m in s.group.roster if m.member_id == ids[0])
    back = s.joined(s.join(group_instance_id=instance))
    assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)


def test_an_old_client_hears_the_old_leader_and_does_not_assign() -> None:
    s = Scenario()
    ids = s.stable("one", "two")
    instance = next(m.group_instance_id for m in s.group.roster if m.member_id == ids[0])
    back = s.joined(s.join(group_instance_id=instance, can_skip_assignment=False))
    assert (back.leader, back.skip_assignment, back.members) == (ids[0], False, ())


def test_a_static_member_whose_new_id_cannot_be_written_keeps_the_old_one() -> None:
    s = Scenario()
    old = s.stable("one")[0]
    s.hold_appends = True
    waiter = s.join(group_instance_id="one", session_timeout_ms=20_000)
    s.fail(NotCoordinatorError)
    assert s.joined(waiter).error is NotCoordinatorError
    s.heartbeat(old, 1, "one")
    assert s.group.roster.checked(old, "one").session_timeout_ms == SESSION_MS
    s.advance(SESSION_MS)
    assert s.group.state is ClassicState.EMPTY


def test_a_static_member_whose_new_id_was_long_in_being_written_is_expected_from_then_on() -> None:
    s = Scenario()
    s.stable("one")
    s.hold_appends = True
    waiter = s.join(group_instance_id="one")
    s.advance(2 * SESSION_MS)
    s.durable()
    assert s.joined(waiter).error is None
    s.advance(SESSION_MS - 1)
    assert s.group.state is ClassicState.STABLE
    s.advance(1)
    assert s.group.state is ClassicState.EMPTY


def test_a_static_member_that_changes_the_chosen_protocol_rebalances() -> None:
    s = Scenario()
    a = s.new_member_id()
    waiters = [s.join(a, protocols=protocols("range", "sticky"))]
    waiters.append(s.join(group_instance_id="one", protocols=protocols("range", "sticky")))
    s.advance(2 * DELAY_MS)
    leader = s.joined(waiters[0]).leader
    for member in list(s.group.roster):
        s.sync(member.member_id) if member.member_id != leader else None
    s.sync(leader, {})
    assert s.group.state is ClassicState.STABLE
    waiter = s.join(group_instance_id="one", protocols=protocols("sticky"))
    assert waiter not in s.replies
    assert s.group.state is ClassicState.PREPARING_REBALANCE


def test_a_static_member_that_comes_back_between_join_and_sync_rebalances() -> None:
    s = Scenario()
    first = s.join(group_instance_id="one")
    s.advance(DELAY_MS)
    waiter = s.sync(s.joined(first).member_id, {}, generation_id=0)
    assert s.synced(waiter).error is IllegalGenerationError
    back = s.join(group_instance_id="one")
    assert s.joined(back).generation_id == 2


def test_a_static_member_that_comes_back_during_the_join_round_fences_its_older_join() -> None:
    s = Scenario()
    older = s.join(group_instance_id="one")
    newer = s.join(group_instance_id="one")
    assert s.joined(older).error is FencedInstanceIdError
    s.advance(2 * DELAY_MS)
    assert s.joined(newer).error is None


def test_a_static_member_keeps_its_place_through_a_round_until_its_session_ends() -> None:
    s = Scenario()
    ids = s.stable("one", None)
    static = str(s.group.roster.static_member_id("one"))
    dynamic = next(one for one in ids if one != static)
    rebalance_ms = 2_000
    s.group.roster.checked(static, "one").rebalance_timeout_ms = rebalance_ms
    waiter = s.join(dynamic, rebalance_timeout_ms=rebalance_ms, protocols=protocols("range", topic="views"))
    s.advance(rebalance_ms)
    assert s.joined(waiter).generation_id == 2
    assert static in s.group.roster


def test_a_round_of_static_members_that_none_of_them_joins_goes_on_until_their_sessions_end() -> None:
    s = Scenario()
    static = s.stable("one")[0]
    rebalance_ms = 2_000
    s.group.roster.checked(static, "one").rebalance_timeout_ms = rebalance_ms
    newcomer = s.new_member_id()
    s.join(newcomer, rebalance_timeout_ms=rebalance_ms)
    s.group.leave([LeavingMember(newcomer)])
    s.run()
    s.advance(3 * rebalance_ms)
    assert s.group.state is ClassicState.PREPARING_REBALANCE
    s.advance(SESSION_MS)
    assert s.group.state is ClassicState.EMPTY


def test_a_round_that_nobody_has_joined_in_its_time_has_no_timer_until_the_first_does() -> None:
    s = Scenario()
    s.stable("one", "two", "three")
    rebalance_ms = 2_000
    for each in s.group.roster:
        each.rebalance_timeout_ms = rebalance_ms
    s.group.leave([LeavingMember("", "three")])
    s.run()
    s.advance(rebalance_ms)
    assert JOIN_TIMER not in s.timers
    waiter = s.join(group_instance_id="one", rebalance_timeout_ms=rebalance_ms)
    s.advance(rebalance_ms - 1)
    assert waiter not in s.replies
    s.advance(1)
    assert s.joined(waiter).generation_id == 2


def test_of_two_incarnations_before_the_first_is_written_the_second_stays() -> None:
    s = Scenario()
    s.stable("one")
    s.hold_appends = True
    first, second = s.join(group_instance_id="one"), s.join(group_instance_id="one")
    assert s.joined(first).error is FencedInstanceIdError
    s.durable()
    back = s.joined(second)
    assert back.error is None
    s.heartbeat(back.member_id, 1, "one")


def test_a_rebalance_that_begins_before_a_static_members_id_is_written_answers_its_join() -> None:
    s = Scenario()
    s.stable("one")
    newcomer = s.new_member_id()
    s.hold_appends = True
    back = s.join(group_instance_id="one")
    s.join(newcomer)
    assert s.joined(back).generation_id == 2
    s.durable()
    assert s.group.state is ClassicState.COMPLETING_REBALANCE


# Descriptions, restart, end


def test_metadata_and_assignments_are_described_of_a_stable_group_only() -> None:
    s = Scenario()
    a = s.stable()[0]
    stable = describe(s.group)
    assert (stable.state, stable.protocol_type, stable.protocol_name) == ("Stable", "consumer", "range")
    assert stable.members[0].metadata == protocols()[0].metadata
    assert stable.members[0].assignment == f"part of {a}".encode()
    s.join(a)
    joining = describe(s.group)
    assert (joining.state, joining.protocol_name) == ("CompletingRebalance", "")
    assert (joining.members[0].metadata, joining.members[0].assignment) == (b"", b"")
    assert summary(s.group).state == "CompletingRebalance"


def test_subscribed_topics_follow_the_generation() -> None:
    s = Scenario()
    a = s.stable()[0]
    assert s.group.subscribed_topics == {"clicks"}
    s.join(a, protocols=protocols("range", topic="views"))
    assert s.group.subscribed_topics == {"views"}
    s.group.leave([LeavingMember(a)])
    assert s.group.subscribed_topics == frozenset()


def test_a_restored_group_goes_on_where_the_journal_left_it() -> None:
    s = Scenario()
    ids = s.stable("one", None)
    record = s.written[-1]
    assert isinstance(record, GroupRecord)
    t = Scenario()
    t.group.restore(record)
    t.group.restored()
    t.run()
    assert t.group.state is ClassicState.STABLE
    assert t.group.roster.leader == ids[0]
    for one in ids:
        t.heartbeat(one)
        assert t.synced(t.sync(one)).assignment == f"part of {one}".encode()
    t.advance(SESSION_MS)
    assert t.group.state is ClassicState.EMPTY


def test_a_restored_group_over_the_size_limit_rebalances() -> None:
    s = Scenario()
    s.stable(None, None)
    record = s.written[-1]
    assert isinstance(record, GroupRecord)
    t = Scenario(group_max_size=1)
    t.group.restore(record)
    t.group.restored()
    assert t.group.state is ClassicState.PREPARING_REBALANCE


def test_a_dead_group_answers_all_who_wait_and_refuses_the_rest() -> None:
    s = Scenario()
    a, b = s.stable(None, None)
    waiting = s.join(b, protocols=protocols("range", topic="views"))
    s.group.die(NotCoordinatorError)
    s.run()
    assert s.joined(waiting).error is NotCoordinatorError
    assert s.timers == {}
    assert s.joined(s.join(a)).error is CoordinatorNotAvailableError
    with pytest.raises(CoordinatorNotAvailableError):
        s.heartbeat(a)
    with pytest.raises(CoordinatorNotAvailableError):
        s.group.leave([LeavingMember(a)])
