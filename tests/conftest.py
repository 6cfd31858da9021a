"""What tests share: real brokers, one Spark session, and how tests are spread over workers.

- `kafka_reference`   Apache Kafka 4.1.1, started once per worker that asks for it
- `kafkalake_broker`  a function that starts a kafkalake broker; it is killed at the end of the test
- `three_brokers`     three brokers of Apache Kafka and three of kafkalake, started once per worker that asks for them
- `any_broker`        the test runs twice, against kafkalake and against Apache Kafka, with the same client calls
- `topic`             a name that no other test uses; brokers are shared
- `spark`             one session for all tests that use Spark, local[2], with Delta and Spark's own Kafka connector

Each test is of one tier (`tests/tiers.py`), which is a marker: `unit`, `process`, `peer` or `spark`. Tests that fail show what
their brokers wrote to stderr.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import local_spark
import pytest
import quick_jvm
import tiers
from examples import register_profiles
from kafka_reference import (
    ApacheKafka,
    BrokerProcess,
    Cluster,
    Clusters,
    Kafkalake,
    kafka_cluster,
    kafkalake_cluster,
    topic_name,
)
from long_runs import is_left_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKERS_OF_TEST = pytest.StashKey[list[BrokerProcess]]()

# Fixtures that are costly to start: the tests that use one stay on one worker.
ONE_WORKER = ("spark", "kafka_reference", "three_brokers")
SHARED_BROKERS: dict[str, Sequence[ApacheKafka | Kafkalake | Cluster]] = {}
"""The brokers that tests of a worker share, by their fixture. Those of a group end behind its last test: an idle Apache Kafka takes
a twentieth of a core.
"""

register_profiles()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script; processes would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
for of in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):  # Spark's drivers; its standalone masters and workers
    os.environ.setdefault(of, " ".join(quick_jvm.options("spark")))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of which `-m` selects nothing: importing the clients and Spark takes longer than many unit tests."""
    if collection_path.match("test_*.py") and not tiers.may_have_tests(collection_path, config.option.markexpr):
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long runs, mark each test with its tier, before `-m` selects, and group the tests for `--dist=loadgroup`.

    A group is the users of a costly fixture, or else a file.
    """
    left_out = [item for item in items if is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
    for item in items:
        item.add_marker(tiers.tier_of(item))
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group_of(item)))
    items[:] = in_order(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to go on where pytest-xdist does not see the groups: each worker would start a Spark session and an Apache Kafka.

    What was collected stays to the end: no garbage collection need look at it again.
    """
    if session.items and hasattr(session.config, "workerinput") and session.config.getvalue("loadgroup"):
        ungrouped = next((item.nodeid for item in session.items if "@" not in item.nodeid.rpartition("::")[2]), None)
        if ungrouped is not None:
            raise pytest.UsageError(f"pytest-xdist does not know the group of {ungrouped}: the versions do not fit")
    gc.collect()
    gc.freeze()


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests by groups, those of the costliest tier first: at the end many short ones keep all workers at work.

    The tests that restart the shared Apache Kafka are the first of its group: that takes seconds while it has few topics, and
    minutes after the tests that fill it.
    """
    groups: dict[str, list[pytest.Item]] = {}
    for item in sorted(items, key=lambda item: item.path.name != "test_kafka_reference.py"):
        groups.setdefault(item.get_closest_marker("xdist_group").args[0], []).append(item)

    def order(group: list[pytest.Item]) -> tuple[int, int]:
        return -max(tiers.TIERS.index(tiers.tier_of(item)) for item in group), -len(group)

    return [item for group in sorted(groups.values(), key=order) for item in group]


def group_of(item: pytest.Item) -> str:
    """The name of the group that this test stays together with on one worker."""
    fixtures = tiers.fixtures_of(item)
    return next((name for name in ONE_WORKER if name in fixtures), item.nodeid.split("::")[0])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the shared brokers of a test again that an earlier one has killed or stopped, or that ended behind their group."""
    for name in tiers.fixtures_of(item) & SHARED_BROKERS.keys():
        for each in SHARED_BROKERS[name]:
            if not each.is_running():
                each.kill()
                each.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Kill the brokers of a group behind its last test."""
    yield
    group, following = (each and each.get_closest_marker("xdist_group") for each in (item, nextitem))
    if group and group.args[0] in SHARED_BROKERS and (following is None or following.args != group.args):
        for each in SHARED_BROKERS[group.args[0]]:
            each.kill()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Refuse processes to unit tests and to their fixtures."""
    with tiers.without_processes(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the stderr of the brokers that a test used into the report of its failure."""
    report = yield
    if report.failed:
        for broker in item.stash.get(BROKERS_OF_TEST, []):
            report.sections.append(
                (f"{broker.name} at {broker.bootstrap_servers}", broker.stderr_tail(80).removeprefix("; "))
            )
    return report


def show_on_failure(request: pytest.FixtureRequest, broker: BrokerProcess) -> None:
    """Have the broker's stderr shown where this test fails."""
    request.node.stash.setdefault(BROKERS_OF_TEST, []).append(broker)


@pytest.fixture(scope="session")
def kafka_reference() -> Iterator[ApacheKafka]:
    """A running Apache Kafka 4.1.1 that all tests of this worker share."""
    with ApacheKafka() as broker:
        SHARED_BROKERS["kafka_reference"] = [broker]
        yield broker


@pytest.fixture(scope="session")
def _shared_kafkalake() -> Iterator[Kafkalake]:
    with Kafkalake() as broker:
        SHARED_BROKERS["_shared_kafkalake"] = [broker]
        yield broker


@pytest.fixture(scope="session")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """Three brokers of each kind, which all tests of this worker share. A test leaves them running, and no groups behind."""
    directory = tmp_path_factory.mktemp("clusters")
    with kafka_cluster(directory) as apache_kafka, kafkalake_cluster(directory) as kafkalake:
        SHARED_BROKERS["three_brokers"] = [apache_kafka, kafkalake]
        yield Clusters(apache_kafka, kafkalake)


@pytest.fixture
def kafkalake_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Kafkalake]]:
    """A function `(lake=None, *, settings=None, broker_id=0, environment=None, start=True) -> Kafkalake`.

    Without `lake` the brokers of a test share the lake `tmp_path / "lake"`; `settings` are `--config` pairs.
    """
    brokers: list[Kafkalake] = []

    def start(
        lake: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        broker_id: int = 0,
        environment: Mapping[str, str] | None = None,
        start: bool = True,
    ) -> Kafkalake:
        broker = Kafkalake(
            lake or tmp_path / "lake",
            directory=tmp_path / f"broker-{len(brokers)}",
            broker_id=broker_id,
            settings=settings,
            environment=environment,
        )
        brokers.append(broker)
        show_on_failure(request, broker)
        return broker.start() if start else broker

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture(params=["kafkalake", "apache-kafka"])
def any_broker(request: pytest.FixtureRequest) -> BrokerProcess:
    """A running broker of each kind in turn. Tests share it, and may kill or stop it: the next test finds it running."""
    broker: BrokerProcess = request.getfixturevalue(
        "_shared_kafkalake" if request.param == "kafkalake" else "kafka_reference"
    )
    show_on_failure(request, broker)
    return broker


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses; the topic itself is not created."""
    return topic_name()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session, local[2], with the settings of spark-conf, Delta, and Spark's own Kafka connector."""
    directory = tmp_path_factory.mktemp("spark")
    settings = local_spark.settings(directory, jar_sets=("delta", "spark-kafka"), driver_memory="1g")
    settings |= local_spark.FEW_ROWS
    session = local_spark.session(master="local[2]", name="kafkalake tests", of=settings)
    yield session
    local_spark.end(session)
