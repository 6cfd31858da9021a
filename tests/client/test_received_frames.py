"""Responses cut from received bytes, however these come."""

from __future__ import annotations

from random import Random

import pytest

from kafkalake.client.received_frames import ReceivedFrames

SIZES = (0, 1, 10, 16_000, 16_379, 16_380, 16_381, 20_000, 300_000, 3)


def size_of(prefix: memoryview) -> int:
    return int.from_bytes(prefix, "big")


@pytest.mark.parametrize("seed", range(20))
def test_responses_of_any_size_come_whole_in_whatever_pieces(seed: int) -> None:
    random = Random(seed)
    sent = [random.randbytes(random.choice(SIZES)) for _ in range(30)]
    data = memoryview(b"".join(len(each).to_bytes(4, "big") + each for each in sent))
    frames, found = ReceivedFrames(size_of), []
    most = random.choice((1_000, 50_000, 1 << 20))
    while data:
        buffer = frames.buffer()
        count = min(len(buffer), len(data), random.randrange(1, most))
        buffer[:count] = data[:count]
        data = data[count:]
        found += [bytes(each) for each in frames.received(count)]
    assert found == sent


def test_a_size_that_no_response_has_is_raised() -> None:
    def refuse(prefix: memoryview) -> int:
        raise ValueError(bytes(prefix))

    frames = ReceivedFrames(refuse)
    frames.buffer()[:5] = b"12345"
    with pytest.raises(ValueError, match="1234"):
        list(frames.received(5))
