"""Records are handed over when they are due: once, in order, whatever fails between."""

from __future__ import annotations

from pathlib import Path

from broker.delayed.delayed_world import START_MS, DelayedWorld, Sent, run


def test_a_record_appears_when_it_is_due(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = DelayedWorld(tmp_path)
        world.coordinator.start()
        await world.settle()
        answers = world.hand_in([Sent(b"b", START_MS + 5_000), Sent(b"a", START_MS + 3_000)])
        await world.settle()
        assert answers == [None]
        await world.pass_time(2_900, 100)
        assert world.targets.values() == []
        await world.pass_time(200, 10)
        assert world.targets.values() == [b"a"]
        await world.pass_time(3_000, 100)
        assert world.targets.values() == [b"a", b"b"]
        first, *_ = world.targets.records(world.targets.appends[0][0])
        assert first[1:] == (
            b"a",
            b"a",
            [("h", b"1"), ("kafkalake-original-timestamp", b"%d" % START_MS), ("kafkalake-delay-ms", b"3000")],
        )
        assert world.coordinator.describe().waiting == 0

    run(scenario())
