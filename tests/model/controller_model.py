"""All states of elections and of commits by outdated controllers, breadth first, by the production decisions and store.

Four processes of three brokers: broker 0 has two at once, as if its lock had failed. Each follows the store whenever it likes, may
take any other for dead (nobody answers, and time passes at will), and stalls anywhere for ever, which is also how it crashes. It
decides on the version that it follows, however old. A commit is refused, or succeeds, or is written without the process learning
it, which then commits the same again, or forgets it. A commit that fails without being written changes nothing.

Brokers 1 and 2 are interchangeable: of two states that differ in their names one is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple
from uuid import UUID

from exploration import Explored, Violation, explore
from memory_control_store import MemoryControlStore

from kafkalake.cluster.controller_election import claim, is_controller, may_claim
from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import BrokerRegistration, ClusterImage
from kafkalake.cluster.registration import check_broker_epoch, fence_broker, register_broker
from kafkalake.errors import DuplicateBrokerRegistrationError, StaleBrokerEpochError, StaleImageError

BROKER_OF = (0, 0, 1, 2)
"""The broker of each process."""
INCARNATIONS = tuple(UUID(int=process + 1) for process in range(len(BROKER_OF)))
FOLLOWER = 0


class Image(NamedTuple):
    """An image as a key: controller, its epoch, version, and (broker, epoch, process, is fenced) of each broker."""

    controller_id: int
    controller_epoch: int
    version: int
    brokers: tuple[tuple[int, int, int, bool], ...]


class Commit(NamedTuple):
    """A version in the store. is_known: its writer may still commit it again, because it did not learn the outcome."""

    image: Image
    writer: int
    is_known: bool


class Process(NamedTuple):
    """The version that it follows, and the epoch in which it takes itself for the controller."""

    version: int
    epoch: int = FOLLOWER


class State(NamedTuple):
    commits: tuple[Commit, ...]
    processes: tuple[Process, ...]


class Step(NamedTuple):
    label: str
    state: State


START = Image(0, 1, 1, ((0, 1, 0, False), (1, 1, 2, False), (2, 1, 3, False)))


@cache
def image_of(key: Image) -> ClusterImage:
    brokers = {
        broker_id: BrokerRegistration(broker_id, epoch, INCARNATIONS[process], (), is_fenced=is_fenced)
        for broker_id, epoch, process, is_fenced in key.brokers
    }
    return ClusterImage("lake", key.controller_id, key.controller_epoch, key.version, brokers=brokers)


def key_of(image: ClusterImage) -> Image:
    brokers = (
        (each.broker_id, each.epoch, INCARNATIONS.index(each.incarnation_id), each.is_fenced)
        for _, each in sorted(image.brokers.items())
    )
    return Image(image.controller_id, image.controller_epoch, image.version, tuple(brokers))


def rules(topic_id: UUID) -> ElectionRules:
    return ElectionRules(1, False)


@cache
def decisions(key: Image) -> tuple[tuple[str, Image], ...]:
    """Return what a controller may decide on an image: to register any process, to fence any broker."""
    image = image_of(key)
    found = []
    for process, broker_id in enumerate(BROKER_OF):
        joining = BrokerRegistration(broker_id, -1, INCARNATIONS[process], ())
        try:
            found.append((f"register {process}", register_broker(image, joining, rules, is_clean=True)))
        except DuplicateBrokerRegistrationError:
            continue
    for broker_id, broker in image.brokers.items():
        found.append((f"fence {broker_id}", fence_broker(image, broker_id, broker.epoch, rules)))
    return tuple((label, key_of(after)) for label, after in found if after is not image)


@cache
def claims(key: Image, broker_id: int, claimed: Callable[[ClusterImage, int], ClusterImage]) -> Image:
    image = image_of(key)
    assert may_claim(image, broker_id, {}, controller_is_gone=False, silent_ms=1, patience_ms=1)
    return key_of(claimed(image, broker_id))


class Election:
    """The steps from a state. make_store: of a version; `claimed`: the claim. Both are production's, or a mutation."""

    def __init__(
        self,
        versions: int,
        *,
        make_store: Callable[..., MemoryControlStore] = MemoryControlStore,
        claimed: Callable[[ClusterImage, int], ClusterImage] = claim,
    ) -> None:
        self._versions = versions
        self._make_store = make_store
        self._claimed = claimed
        self._is_accepted = cache(self._accepts)
        self._is_found = cache(self._finds)

    def start(self) -> State:
        first = Process(1, epoch=1)
        return State((Commit(START, 0, False),), (first, Process(1), Process(1), Process(1)))

    def steps(self, state: State) -> Iterator[Step]:
        for number, process in enumerate(state.processes):
            if process.version < len(state.commits):
                yield self._followed(state, number, process)
            if process.version < self._versions:
                yield from self._commits(state, number, process)
            yield from self._repeats(state, number, process)

    def _followed(self, state: State, number: int, process: Process) -> Step:
        """Return the step in which a process loads the newest image, by which a controller learns whether it is deposed."""
        newest = image_of(state.commits[-1].image)
        stays = process.epoch != FOLLOWER and is_controller(newest, BROKER_OF[number], process.epoch)
        followed = Process(len(state.commits), process.epoch if stays else FOLLOWER)
        return Step(f"{number} follows", _with(state, number, followed))

    def _commits(self, state: State, number: int, process: Process) -> Iterator[Step]:
        known = state.commits[process.version - 1].image
        if process.epoch == FOLLOWER:
            claimed = claims(known, BROKER_OF[number], self._claimed)
            choices = (("claims", claimed, claimed.controller_epoch),)
        else:
            choices = tuple((label, image, process.epoch) for label, image in decisions(known))
        for label, image, epoch in choices:
            if not self._is_accepted(state.commits[-1].image, image):
                continue  # the process follows, a step of its own
            commits = (*_forgotten(state.commits, number), Commit(image, number, False))
            check(commits)
            yield Step(
                f"{number} {label}", _with(State(commits, state.processes), number, Process(image.version, epoch))
            )
            unknown = (*commits[:-1], Commit(image, number, True))
            yield Step(f"{number} {label}, and does not learn it", State(unknown, state.processes))

    def _repeats(self, state: State, number: int, process: Process) -> Iterator[Step]:
        for version, each in enumerate(state.commits, 1):
            if each.is_known and each.writer == number:
                assert self._is_found(tuple(commit.image for commit in state.commits), each.image)
                done = State(_forgotten(state.commits, number), state.processes)
                before = state.commits[version - 2].image
                is_claim = each.image.controller_epoch > before.controller_epoch
                epoch = each.image.controller_epoch if is_claim else process.epoch
                yield Step(f"{number} commits version {version} again", _with(done, number, Process(version, epoch)))
                yield Step(f"{number} forgets version {version}", done)

    def _accepts(self, newest: Image, image: Image) -> bool:
        """Return whether the store has an image after the commit of a process that decided on it. Raise `Violation` as `check`."""
        store = self._make_store(image_of(newest))
        try:
            store.commit(replace(image_of(image)))  # an object of its own, as each process has it
        except StaleImageError:
            return False
        if len(store.images) == 1:
            raise Violation("a process takes the commit of another for its own")
        return True

    def _finds(self, images: tuple[Image, ...], image: Image) -> bool:
        """Return whether the store finds a commit that was written before, and writes nothing."""
        store = self._make_store(image_of(images[0]))
        for each in images[1:]:
            store.commit(image_of(each))
        store.commit(image_of(image))
        return len(store.images) == len(images)


def _forgotten(commits: tuple[Commit, ...], number: int) -> tuple[Commit, ...]:
    return tuple(each._replace(is_known=False) if each.writer == number else each for each in commits)


def _with(state: State, number: int, process: Process) -> State:
    processes = list(state.processes)
    processes[number] = process
    return State(state.commits, tuple(processes))


def check(commits: tuple[Commit, ...]) -> None:
    """Raise `Violation` if the newest version contradicts the earlier ones."""
    *earlier, newest = commits
    before = earlier[-1]
    if newest.image.version != before.image.version + 1:
        raise Violation("a version was replaced, or left out")
    if newest.image.controller_epoch < before.image.controller_epoch:
        raise Violation("a deposed controller has committed")
    if any(
        each.image.controller_epoch == newest.image.controller_epoch and each.writer != newest.writer
        for each in earlier
    ):
        raise Violation("two processes have committed as the controller of one epoch")
    image = image_of(newest.image)
    for each in earlier:
        for broker_id, epoch, process, _ in each.image.brokers:
            current = next((known for known in newest.image.brokers if known[0] == broker_id), None)
            if current is not None and current[2] == process and current[1] == epoch:
                continue
            try:
                check_broker_epoch(image, broker_id, epoch)
            except StaleBrokerEpochError:
                continue
            raise Violation("an earlier incarnation is not told from the registered one")


def renamed(state: State) -> State:
    """Return the state with brokers 1 and 2 exchanged."""

    def image(key: Image) -> Image:
        brokers = sorted((_BROKER[each[0]], each[1], _PROCESS[each[2]], each[3]) for each in key.brokers)
        return Image(
            _BROKER.get(key.controller_id, key.controller_id), key.controller_epoch, key.version, tuple(brokers)
        )

    commits = tuple(Commit(image(each.image), _PROCESS[each.writer], each.is_known) for each in state.commits)
    first, second, third, fourth = state.processes
    return State(commits, (first, second, fourth, third))


_BROKER = {0: 0, 1: 2, 2: 1}
_PROCESS = {0: 0, 1: 1, 2: 3, 3: 2}


def explore_elections(model: Election, states_max: int) -> Explored:
    """Return what is found in all states. Raise `AssertionError` if there are more than `states_max`."""
    return explore(model.start(), model.steps, states_max, lambda state: min(state, renamed(state)))
