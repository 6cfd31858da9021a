"""Scripts of requests about one transactional id; each yields answers to be compared line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.transactions.kafka_world import TIMEOUT_MS, World

Line = object
Script = Callable[[World, str], Iterator[Line]]


def older_client(w: World, topic: str) -> Iterator[Line]:
    """A client that adds partitions itself and keeps its epoch."""
    yield w.describe()
    yield w.init()
    yield w.describe()
    yield w.end("p0", 0, committed=True, v2=False)
    yield w.end("p0", 0, committed=False, v2=False)
    yield w.add("p0", 0, [(topic, 0), (topic, 1)], v2=False)
    yield w.add("p0", 0, [(topic, 0)], v2=False)
    yield w.describe()
    yield w.verify("p0", 0, [(topic, 0), (topic, 2)])
    yield w.verify("p0", 1, [(topic, 0)])
    yield w.verify("p9", 0, [(topic, 0)])
    yield w.end("p0", 1, committed=True, v2=False)
    yield w.end("p9", 0, committed=True, v2=False)
    yield w.end("p0", 0, committed=True, v2=False)
    w.settle()
    yield w.describe()
    yield w.end("p0", 0, committed=True, v2=False)
    yield w.end("p0", 0, committed=False, v2=False)
    yield w.verify("p0", 0, [(topic, 0)])
    yield w.add("p0", 0, [(topic, 3)], v2=False)
    yield w.end("p0", 0, committed=False, v2=False)
    w.settle()
    yield w.describe()
    yield w.end("p0", 0, committed=True, v2=False)
    yield w.end("p0", 0, committed=False, v2=False)
    yield w.init()
    yield w.describe()
    yield w.add("p0", 0, [(topic, 0)], v2=False)
    yield w.end("p0", 0, committed=True, v2=False)


def newer_client(w: World, topic: str) -> Iterator[Line]:
    """KIP-890: each end of a transaction gives the next epoch."""
    yield w.init()
    yield w.add("p0", 0, [(topic, 0)], v2=True)
    yield w.add("p0", 0, [(topic, 0), (topic, 1)], v2=True)
    yield w.end("p0", 1, committed=True, v2=True)
    yield w.end("p9", 0, committed=True, v2=True)
    yield w.end("p0", 0, committed=True, v2=True)
    w.settle()
    yield w.describe()
    yield w.end("p0", 0, committed=True, v2=True)
    yield w.end("p0", 0, committed=False, v2=True)
    yield w.add("p0", 0, [(topic, 0)], v2=True)
    yield w.verify("p0", 0, [(topic, 0)])
    yield w.verify("p0", 1, [(topic, 0)])
    yield w.end("p0", 1, committed=True, v2=True)
    yield w.describe()
    yield w.end("p0", 1, committed=False, v2=True)
    w.settle()
    yield w.describe()
    yield w.end("p0", 1, committed=False, v2=True)
    yield w.end("p0", 1, committed=True, v2=True)
    yield w.end("p0", 2, committed=False, v2=True)
    w.settle()
    yield w.describe()
    yield w.add("p0", 3, [(topic, 2)], v2=True)
    yield w.end("p0", 3, committed=False, v2=True)
    w.settle()
    yield w.end("p0", 3, committed=False, v2=True)
    yield w.end("p0", 3, committed=True, v2=True)
    yield w.end("p0", 4, committed=True, v2=True)
    yield w.end("p0", 9, committed=True, v2=True)
    yield w.init()
    yield w.describe()


def nothing_in_it(w: World, topic: str) -> Iterator[Line]:
    """Ending a transaction that never began."""
    yield w.end("p0", 0, committed=False, v2=True)
    yield w.init()
    yield w.end("p0", 0, committed=True, v2=True)
    yield w.end("p0", 1, committed=False, v2=True)
    yield w.end("p0", 0, committed=False, v2=True)
    w.settle()
    yield w.describe()
    yield w.end("p0", 0, committed=False, v2=True)
    yield w.end("p0", 1, committed=False, v2=True)
    w.settle()
    yield w.describe()


def fencing(w: World, topic: str) -> Iterator[Line]:
    """A second producer comes while the first has a transaction open."""
    for v2 in (False, True):
        _, producer, epoch = w.init()
        yield producer, epoch
        yield w.add(producer, epoch, [(topic, 0)], v2=v2)
        yield w.init()
        w.settle()
        yield w.describe()
        yield w.end(producer, epoch, committed=True, v2=v2)
        yield w.end(producer, epoch, committed=False, v2=v2)
        yield w.add(producer, epoch, [(topic, 0)], v2=v2)
        yield w.init()
        yield w.end(producer, epoch, committed=True, v2=v2)
        yield w.end(producer, epoch, committed=False, v2=v2)
        yield w.describe()


def expected_epochs(w: World, topic: str) -> Iterator[Line]:
    """KIP-360: a producer that had an error comes back with the id and epoch it believes in."""
    yield w.init(expected=("p9", 5))
    yield w.describe()
    first = w.init()
    yield first
    producer, epoch = first[1], first[2]
    yield w.init(expected=(producer, epoch))
    yield w.init(expected=(producer, epoch))
    yield w.init(expected=(producer, epoch + 1))
    yield w.init(expected=(producer, epoch))
    yield w.init(expected=(producer, epoch + 9))
    yield w.init(expected=("p9", epoch))
    current = w.describe()[4]
    yield w.add(producer, current, [(topic, 0)], v2=False)
    yield w.init(expected=(producer, current - 1))
    w.settle()
    yield w.describe()
    yield w.init(expected=(producer, current))
    yield w.describe()


def expected_epochs_of_newer_clients(w: World, topic: str) -> Iterator[Line]:
    """KIP-360 after a transaction of version 2."""
    yield w.init()
    yield w.add("p0", 0, [(topic, 0)], v2=True)
    yield w.end("p0", 0, committed=True, v2=True)
    w.settle()
    yield w.init(expected=("p0", 0))
    yield w.init(expected=("p0", 1))
    yield w.init(expected=("p0", 1))
    yield w.init(expected=("p0", 0))
    current = w.describe()[4]
    yield w.add("p0", current, [(topic, 0)], v2=True)
    yield w.init(expected=("p0", current))
    w.settle()
    yield w.describe()
    yield w.init(expected=("p0", current))
    yield w.describe()


def bad_input(w: World, topic: str) -> Iterator[Line]:
    """What makes no sense leaves nothing behind."""
    yield w.init(timeout_ms=0)
    yield w.init(timeout_ms=-1)
    yield w.init(timeout_ms=900_001)
    yield w.describe()
    yield w.add("p9", 0, [(topic, 0)], v2=False)
    yield w.add("p9", 0, [(topic, 0)], v2=True)
    yield w.verify("p9", 0, [(topic, 0)])
    yield w.add_offsets("p9", 0, "group")
    yield w.end("p9", 0, committed=True, v2=False)
    yield w.init(timeout_ms=900_000)
    yield w.verify("p0", 0, [(topic, 0)])
    yield w.add_offsets("p0", 1, "group")
    yield w.describe()


def mixed_clients(w: World, topic: str) -> Iterator[Line]:
    """One transactional id used by an older client after a newer one, and the other way round."""
    yield w.init(timeout_ms=TIMEOUT_MS)
    yield w.add("p0", 0, [(topic, 0)], v2=True)
    yield w.end("p0", 0, committed=True, v2=False)
    w.settle()
    yield w.describe()
    yield w.add("p0", 0, [(topic, 0)], v2=False)
    yield w.end("p0", 0, committed=True, v2=True)
    w.settle()
    yield w.describe()
    yield w.end("p0", 0, committed=True, v2=False)
    yield w.end("p0", 1, committed=True, v2=False)
    yield w.end("p0", 1, committed=False, v2=False)
    yield w.add("p0", 1, [(topic, 0)], v2=False)
    yield w.end("p0", 1, committed=False, v2=False)
    w.settle()
    yield w.describe()


SCRIPTS: list[Script] = [
    older_client,
    newer_client,
    nothing_in_it,
    fencing,
    expected_epochs,
    expected_epochs_of_newer_clients,
    bad_input,
    mixed_clients,
]
