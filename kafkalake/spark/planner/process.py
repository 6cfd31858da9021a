"""`python -m kafkalake.spark.planner.process`: answers the jar's questions for as long as the driver's JVM lives.

A frame is a length (int32, big-endian) and JSON. The JVM numbers its questions and may ask the next before the last is answered:
`{"id": 7, "ask": "load", ...}` is answered by `{"id": 7, "answer": ...}`, or `{"id": 7, "error": class, "message": sentence}`.
Questions that change a topic say `"is_statement": true`; procedures and deletions, which may take hours, `"is_procedure": true`.
`{"withdrawn": 7}` takes a question back that nobody waits for any more: a statement that has not begun is not carried out, and a
procedure that has begun ends before its next step. The process ends when the JVM closes the connection, or ends, with the
statements that it has begun.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO

from kafkalake.errors import KafkaLakeError, file_sentence
from kafkalake.extras import WithoutPandas
from kafkalake.spark.planner.question import Answer, Question
from kafkalake.spark.source.installed_pyspark import prefer_installed_pyspark

THREADS = 8
STATEMENT_THREADS = 64
"""More, as the commit of a write may take as long as its `commitTimeout`."""
FRAME_BYTES_MAX = 1 << 30

IS_WITHDRAWN = "is_withdrawn"
"""The key under which `answer` gets a function that says whether the question was withdrawn."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question that has no answer yet."""

    work: Future[None]
    withdrawn: threading.Event

    def withdraw(self) -> None:
        self.withdrawn.set()
        self.work.cancel()


def serve(incoming: BinaryIO, outgoing: BinaryIO, answer: Answer) -> None:
    """Answer questions until `incoming` ends. Raise `ValueError` for a frame that is no question."""
    writing = threading.Lock()
    waiting: dict[int, _Asked] = {}

    def reply(question: Question, withdrawn: threading.Event) -> None:
        answered = _answered({**question, IS_WITHDRAWN: withdrawn.is_set}, answer)
        try:
            frame = encode(answered)
        except (ValueError, TypeError, struct.error) as error:
            frame = encode({"id": question["id"], "error": type(error).__name__, "message": f"no answer: {error}"})
        with writing:
            waiting.pop(question["id"], None)
            outgoing.write(frame)
            outgoing.flush()

    threads = ThreadPoolExecutor(THREADS, thread_name_prefix="question")
    # Beside the others: scans that hang hold no statement back, which would then be carried out later.
    statements = ThreadPoolExecutor(STATEMENT_THREADS, thread_name_prefix="statement")
    procedures = ThreadPoolExecutor(THREADS, thread_name_prefix="procedure")
    try:
        while (question := read_frame(incoming)) is not None:
            with writing:
                if "withdrawn" in question:
                    if (withdrawn := waiting.pop(question["withdrawn"], None)) is not None:
                        withdrawn.withdraw()
                    continue
                pool = statements if question.get("is_statement") else threads
                pool = procedures if question.get("is_procedure") else pool
                is_withdrawn = threading.Event()
                waiting[question["id"]] = _Asked(pool.submit(reply, question, is_withdrawn), is_withdrawn)
    finally:
        for pool in (threads, statements, procedures):
            pool.shutdown(wait=False, cancel_futures=True)
        with writing:
            for asked in waiting.values():
                asked.withdrawn.set()


def read_frame(incoming: BinaryIO) -> Any:
    """Return the next frame's JSON, or None at the end. Raise `ValueError` if it is no frame."""
    head = incoming.read(4)
    if len(head) < 4:
        return None
    (length,) = struct.unpack(">i", head)
    if not 0 <= length <= FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {length} bytes")
    body = incoming.read(length)
    return json.loads(body) if len(body) == length else None


def encode(content: Any) -> bytes:
    """Return the frame of `content`."""
    body = json.dumps(content).encode()
    return struct.pack(">i", len(body)) + body


def _answered(question: Question, answer: Answer) -> dict[str, Any]:
    try:
        return {"id": question["id"], "answer": answer(question)}
    except KafkaLakeError as error:
        return {"id": question["id"], "error": type(error).__name__, "message": str(error)}
    except OSError as error:
        return {"id": question["id"], "error": type(error).__name__, "message": file_sentence(error)}
    except Exception as error:
        traceback.print_exc()
        return {"id": question["id"], "error": type(error).__name__, "message": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Connect to the JVM that started this process, and answer it."""
    prefer_installed_pyspark()
    sys.meta_path.insert(0, WithoutPandas())
    from pyspark.worker_util import get_sock_file_to_executor

    with get_sock_file_to_executor(timeout=None) as connection:
        # Imported here: the JVM waits for the connection for a few seconds only.
        from kafkalake.spark.planner.requests import FIRST, answer, function_of

        for ask in FIRST:
            function_of(ask)
        serve(connection, connection, answer)  # type: ignore[arg-type]  # pyspark says IO


if __name__ == "__main__":
    main()
