"""Producer ids: none is given twice, blocks are asked for in time, and ids from files of earlier releases are passed over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafkalake.broker.admin.producer_ids import FILE_NAME, ProducerIds, first_unused
from kafkalake.cluster.producer_ids import BLOCK
from kafkalake.errors import CoordinatorLoadInProgressError, LakeError, NotControllerError
from kafkalake.storage.files import REAL_FILES


class Blocks:
    """A controller that allocates blocks, unless it is told not to."""

    def __init__(self) -> None:
        self.allocated = 0
        self.fails = False

    async def allocate(self) -> range:
        if self.fails:
            raise NotControllerError
        self.allocated += 1
        return range((self.allocated - 1) * BLOCK, self.allocated * BLOCK)


def test_the_next_block_is_there_before_the_last_one_is_used_up() -> None:
    async def run() -> None:
        blocks = Blocks()
        ids = ProducerIds(blocks.allocate)
        await ids.have_some(1000)
        given = []
        for _ in range(3 * BLOCK):
            given.append(ids.next_id())
            await asyncio.sleep(0)
        assert given == list(range(3 * BLOCK))
        assert blocks.allocated == 4

    asyncio.run(run())


def test_without_a_controller_a_client_is_to_ask_again_and_then_goes_on() -> None:
    async def run() -> None:
        blocks = Blocks()
        ids = ProducerIds(blocks.allocate)
        blocks.fails = True
        for _ in range(2):
            await ids.have_some(1000)
            with pytest.raises(CoordinatorLoadInProgressError):
                ids.next_id()
        blocks.fails = False
        await ids.have_some(1000)
        assert ids.next_id() == 0
        ids.stop()

    asyncio.run(run())


def test_a_controller_that_does_not_answer_holds_nobody_up_for_long() -> None:
    async def run() -> None:
        never: asyncio.Future[range] = asyncio.get_running_loop().create_future()
        ids = ProducerIds(lambda: never)
        await ids.have_some(1)
        assert not ids.are_there
        ids.stop()

    asyncio.run(run())


def test_blocks_begin_behind_the_ids_in_files(tmp_path: Path) -> None:
    paths = [(broker_id, str(tmp_path / f"{broker_id}-{FILE_NAME}")) for broker_id in range(3)]
    assert first_unused(paths, REAL_FILES) == 0
    Path(paths[0][1]).write_text('{"reserved": 3000}')
    assert first_unused(paths, REAL_FILES) == 3000
    Path(paths[2][1]).write_text('{"reserved": 1000}')
    assert first_unused(paths, REAL_FILES) == 2 * 2**40 + 1000


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    for content in ("", "{}", '{"reserved": "x"}', '{"reserved": -1}', "[1]"):
        path.write_text(content)
        with pytest.raises(LakeError):
            first_unused([(0, str(path))], REAL_FILES)
