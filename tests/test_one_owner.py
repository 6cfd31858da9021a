"""A fact of a lake is worked out in one place, held by reading the sources: everybody else asks that place.

Each rule is a function of sources, so that each is also seen to find what breaks it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

import pytest
from sources import ON_ONE_WORKER, nodes, sources

pytestmark = ON_ONE_WORKER

_TAKES_APART = {"split", "rsplit", "partition", "rpartition", "startswith", "removeprefix"}


def paths_taken_apart(of: Mapping[str, str]) -> list[str]:
    """Return where the path of a segment is taken apart: the broker that has it is a column of its row."""
    return [
        f"{module}:{node.lineno}"
        for module, source in of.items()
        for node in nodes(source, ast.Attribute)
        if node.attr in _TAKES_APART
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "path"
        and ast.unparse(node.value) != "os.path"
    ]


def test_no_path_of_a_segment_is_taken_apart() -> None:
    assert paths_taken_apart(sources()) == []


@pytest.mark.parametrize(
    "source", ['int(row.path.split("/")[1])', "found = [row for row in rows if row.path.startswith(prefix)]"]
)
def test_a_path_taken_apart_is_found(source: str) -> None:
    assert len(paths_taken_apart({"metadata/cleaning.py": source})) == 1


ASKED_OF = {
    "partitions_by_id": {"reader/live_partitions.py"},  # who leads a partition
    "partition_path": {"metadata/catalog.py"},  # the directory of a replica
}
"""Function that works out a fact -> the modules that call it."""


def callers(of: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the modules that call each function of `ASKED_OF`."""
    found: dict[str, set[str]] = {name: set() for name in ASKED_OF}
    for module, source in of.items():
        if not any(name in source for name in found):
            continue
        for node in nodes(source, ast.Call):
            if (name := ast.unparse(node.func).rpartition(".")[2]) in found:
                found[name].add(module)
    return found


def test_leaders_and_their_directories_are_looked_up_in_one_place() -> None:
    assert callers(sources()) == ASKED_OF


def test_a_second_lookup_is_found() -> None:
    found = callers(
        {"jobs/lag.py": "leaders = catalog.partitions_by_id(rows)\npath = paths.partition_path(lake, 0, t, 1)"}
    )
    assert {name for name, modules in found.items() if modules} == {"partitions_by_id", "partition_path"}


def stores_opened(of: Mapping[str, str]) -> dict[str, int]:
    """Return how often each module opens the tables of a lake."""
    found = {
        module: sum(ast.unparse(node.func).endswith("DeltaMetadataStore") for node in nodes(source, ast.Call))
        for module, source in of.items()
        if "DeltaMetadataStore" in source
    }
    return {module: number for module, number in found.items() if number}


def test_a_read_opens_the_tables_once() -> None:
    found = stores_opened(sources())
    assert {module: number for module, number in found.items() if module.startswith(("reader/", "spark/"))} == {
        "reader/bounds.py": 1,  # a batch query
        "reader/delayed.py": 1,  # what waits, which is read as a topic
        "spark/planner/lakes.py": 1,  # what a driver with the jar asks
        "spark/stream/stream.py": 1,  # a stream on a driver without it
    }


def test_tables_opened_again_are_found() -> None:
    assert stores_opened({"reader/group_positions.py": "DeltaMetadataStore(lake)"}) == {"reader/group_positions.py": 1}


RULES = ("max_message_bytes", "message_timestamp_before_max_ms", "message_timestamp_after_max_ms")
RULES += ("message_timestamp_type", "compression_type", "compacts", "cleanup_policy")
"""The settings that say what a topic accepts, as fields of `TopicConfig`."""
READ_BY = {
    "config/topic_rules.py": {*RULES} - {"cleanup_policy"},
    "config/topics.py": {"cleanup_policy"},  # what it names, for all others
    "storage/log.py": {"message_timestamp_type"},  # the log stamps records
    "broker/partitions/fetch.py": {"compression_type"},  # what consumers get, not what producers may send
    "broker/coordination/journal_writer.py": {"max_message_bytes"},  # the broker's own records, not a producer's
    "client/producing/settings.py": {"compression_type"},  # a producer's own setting
    "jobs/compaction/command.py": {"compacts"},  # what is cleaned, not what is accepted
    "reader/changelog.py": {"compacts"},  # what a record means
}


def settings_read(of: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the settings of `RULES` that each module reads. `limits` are the codec's, which has them from the rules."""
    found = {
        module: {
            node.attr
            for node in nodes(source, ast.Attribute)
            if node.attr in RULES and not ast.unparse(node.value).endswith("limits")
        }
        for module, source in of.items()
    }
    return {module: names for module, names in found.items() if names}


def test_what_a_topic_accepts_is_read_in_one_place() -> None:
    assert settings_read(sources()) == READ_BY


def test_a_second_reading_is_found() -> None:
    assert settings_read({"a.py": "if size > topic.config.max_message_bytes: ..."}) == {"a.py": {"max_message_bytes"}}


EPOCH_MADE_BY = {"reader/session_time.py"}
RETRIEVED_BY = {"run_blocking.py"}
"""Modules that write what others import: 1970 as a `datetime`, and the retrieval of an error that nobody waits for."""


def epochs_made(of: Mapping[str, str]) -> set[str]:
    """Return the modules that make the beginning of 1970."""
    return {
        module
        for module, source in of.items()
        if "1970" in source
        for node in nodes(source, ast.Call)
        if [ast.unparse(each) for each in node.args[:3]] == ["1970", "1", "1"]
    }


def errors_retrieved(of: Mapping[str, str]) -> set[str]:
    """Return the modules that call `exception()` of a future and drop what it returns."""
    return {
        module
        for module, source in of.items()
        if "exception()" in source
        for node in nodes(source, ast.Expr, ast.Lambda)
        if ast.unparse(node).endswith(".exception()")
    }


def test_1970_and_errors_without_a_waiter_have_one_place() -> None:
    assert epochs_made(sources()) == EPOCH_MADE_BY
    assert errors_retrieved(sources()) == RETRIEVED_BY


def test_a_second_place_is_found() -> None:
    assert epochs_made({"a.py": "_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)"}) == {"a.py"}
    for source in ("change.exception()", "f(lambda late: late.cancelled() or late.exception())"):
        assert errors_retrieved({"a.py": source}) == {"a.py"}


WORDS = {
    "snappy": {"codecs.py", "config/topics.py"},  # names of codecs; a setting lists them in Kafka's order
    "flock": {"metadata/lock_file.py"},
    "get_close_matches": {"close_names.py"},
}
"""What only the owners of a fact write: a string or an attribute."""


def modules_with(word: str, of: Mapping[str, str]) -> set[str]:
    """Return the modules with the string `word`, or an attribute of that name."""
    return {
        module
        for module, source in of.items()
        if word in source
        and any(
            (isinstance(node, ast.Constant) and node.value == word)
            or (isinstance(node, ast.Attribute) and node.attr == word and ast.unparse(node.value) != "cramjam")
            for node in nodes(source, ast.Constant, ast.Attribute)
        )
    }


@pytest.mark.parametrize("word", WORDS)
def test_a_word_stands_with_its_owner(word: str) -> None:
    assert modules_with(word, sources()) == WORDS[word]


@pytest.mark.parametrize("source", ['CODECS = ("none", "snappy")', "fcntl.snappy(file)"])
def test_a_second_owner_is_found(source: str) -> None:
    assert modules_with("snappy", {"a.py": source, "b.py": "cramjam.snappy.compress(data)  # snappy"}) == {"a.py"}


OWN_ID_READ_BY = {"describe_configs.py"}  # asks for the settings of this broker and no other


def own_ids_read(of: Mapping[str, str]) -> set[str]:
    """Return the handlers that read this broker's id: who leads, replicates or coordinates what is in the cluster's image."""
    return {
        module.removeprefix("server/handlers/")
        for module, source in of.items()
        if module.startswith("server/handlers/") and "broker_id" in source
        for node in nodes(source, ast.Attribute)
        if ast.unparse(node).endswith("broker.broker_id")
    }


def registrations_made(of: Mapping[str, str]) -> set[str]:
    """Return the modules that register a partition themselves: its leader, its replicas."""
    return {
        module
        for module, source in of.items()
        if "PartitionRegistration" in source
        for node in nodes(source, ast.Call)
        if ast.unparse(node.func) == "PartitionRegistration"
    }


def test_who_leads_a_partition_is_read_from_the_image() -> None:
    assert own_ids_read(sources()) == OWN_ID_READ_BY
    assert registrations_made(sources()) == {
        "cluster/topic_changes.py",
        "metadata/catalog.py",  # of a lake without the table `cluster`, for readers
        "metadata/registrations.py",
        "metadata/tables/cluster_rows.py",
    }


def test_a_handler_that_takes_this_broker_for_the_leader_is_found() -> None:
    source = 'answer = {"leader_id": request.context.broker.broker_id}\nmade = PartitionRegistration(0, 0)'
    assert own_ids_read({"server/handlers/metadata.py": source}) == {"metadata.py"}
    assert registrations_made({"broker/admin/topic_admin.py": source}) == {"broker/admin/topic_admin.py"}


def other_loggers(of: Mapping[str, str]) -> list[str]:
    """Return the modules whose logger has another name than `logger`."""
    return [
        module for module, source in of.items() if re.search(r"^(?!logger\b)\w+ = logging\.getLogger", source, re.M)
    ]


def test_a_logger_has_one_name() -> None:
    assert other_loggers(sources()) == []
    assert other_loggers({"a.py": "_log = logging.getLogger(__name__)", "b.py": "logger = logging.getLogger()"}) == [
        "a.py"
    ]


FLUSHED_BY = {"broker/broker.py": {"flush", "end_burst"}}
"""Who knows the append queue's way to write: all others call the broker."""


def flushes_of_the_queue(of: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the ways to flush the append queue that modules take from it."""
    found = {
        module: {
            node.attr
            for node in nodes(source, ast.Attribute)
            if node.attr in ("flush", "flush_a_turn", "end_burst")
            and ast.unparse(node.value).endswith(("append_queue", "_queue"))
        }
        for module, source in of.items()
        if "_queue" in source
    }
    return {module: names for module, names in found.items() if names}


def test_a_burst_of_reads_is_ended_by_the_broker() -> None:
    assert flushes_of_the_queue(sources()) == FLUSHED_BY


def test_a_flush_from_elsewhere_is_found() -> None:
    source = "context.broker.append_queue.flush_a_turn()"
    assert flushes_of_the_queue({"server/dispatch.py": source}) == {"server/dispatch.py": {"flush_a_turn"}}
