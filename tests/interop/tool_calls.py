"""Runs Kafka's tools one after the other in one JVM (`ToolCalls.java`). Ids, addresses, times and sizes become words."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from quick_jvm import kafka_command

PROGRAM = Path(__file__).parent / "ToolCalls.java"
TOOLS = "org.apache.kafka.tools."
VERIFY = TOOLS + "ReplicaVerificationTool"

WORDS = (
    (r"[ \t]+", " "),
    (r"127\.0\.0\.1:\d+(,127\.0\.0\.1:\d+)*", "HOST"),
    (r"127\.0\.0\.1 \d+", "HOST"),
    (r"^Cluster ID: \S+", "Cluster ID: ID"),
    (r"^.*clients-.*$", ""),  # transactions of other tests
    (r"^.*\bg-[0-9a-f]{10}\b.*$", ""),  # groups of other tests
    (
        r"^ *min\.insync\.replicas=1 .*$",
        "",
    ),  # Apache Kafka sets it for the cluster where it has eligible leader replicas
    (r"min\.insync\.replicas=1,?", ""),
    (r"TopicId: \S+", "TopicId: ID"),
    (r'"(size|logDir)":("[^"]*"|\d+)', r'"\1":0'),
    (r'"directoryId": "[^"]*"', '"directoryId": "ID"'),
    (r"(ReplicaKey\(id=\d, directoryId=)[^)]*\)", r"\1ID)"),
    (r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+", "TIME"),
    (r"for partition \S+ at offset \d+ among", "for partition P at offset N among"),
    (r"controller \d", "controller N"),
    (r"Epoch: \d+", "Epoch: N"),
    (r"^(ClusterId|LeaderId|LeaderEpoch|HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs): \S+", r"\1: N"),
    (r"\b\d{13}\b", "TIMESTAMP"),
    (r"^t \d+ \d+ ", "t N N "),  # coordinator, producer id
    (r"^\d+ t \d+ (.*TIMESTAMP) \d+", r"N t N \1 N"),
    (r"^\d+ (\d+) \d+ (\d+ TIMESTAMP)", r"N \1 N \2"),  # producer id, coordinator epoch
    (r"\(\d\) -", "(N) -"),
    (r" +$", ""),
)


B = TypeVar("B")


def of_both(
    outputs: Callable[[B, Path], dict[str, str]], kafka: B, kafkalake: B, directory: Path
) -> tuple[dict[str, str], dict[str, str]]:
    """Return what `outputs(broker, directory)` returns for each kind of broker. Tools mostly wait, so both run at once."""
    directories = [directory / "kafka", directory / "kafkalake"]
    for each in directories:
        each.mkdir()
    with ThreadPoolExecutor() as at_once:
        expected, found = at_once.map(outputs, (kafka, kafkalake), directories)
    return expected, found


def call(
    servers: str, commands: Sequence[tuple[str, str, str]], files: Mapping[str, Path], until: Mapping[str, str]
) -> dict[str, str]:
    """Return what each command (name, class, arguments) prints, and how it ends.

    `{servers}` in the arguments stands for the option with the addresses, which is the first one otherwise. until: a pattern
    that an output has in the end, by name.
    """
    lines = []
    for name, tool, arguments in commands:
        text = arguments if "{servers}" in arguments else f"{{servers}} {arguments}"
        option = f"{'--broker-list' if tool == VERIFY else '--bootstrap-server'} {servers}"
        lines.append("\t".join([name, tool, until.get(name, ""), *text.format(servers=option, **files).split()]))
    run = subprocess.run(
        [*kafka_command("-Xmx256m"), str(PROGRAM), VERIFY, "max lag"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = re.split(r"^### (.*) (\w+)$", run.stdout, flags=re.MULTILINE)[1:]
    return {name: f"{ended}\n{plain(text)}" for name, ended, text in zip(*[iter(found)] * 3, strict=True)}


def plain(text: str) -> str:
    """Return an output with words for what differs from run to run, in lines without a stack trace."""
    text = "\n".join(line for line in text.splitlines() if not re.match(r"\tat |.*ToolCalls|null$|Caused by: ", line))
    text = re.sub(r"(?<= are )\S+=\S+, .*", lambda quotas: ", ".join(sorted(quotas[0].split(", "))), text)
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return "\n".join(line for line in text.splitlines() if line.strip())
