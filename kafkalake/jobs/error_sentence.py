"""Reduces an error from Python, the JVM, or a worker's traceback in a Java exception to one sentence."""

from __future__ import annotations

import re

from kafkalake.errors import file_sentence
from kafkalake.extras import missing_extra

_JAVA_CLASS = r"(?:[\w.$]+: )?"
"""An exception's, before its message."""


def one_line_message(error: BaseException) -> str:
    """Return the message of an error without the stack traces of Python and the JVM."""
    if isinstance(error, OSError):
        return file_sentence(error)
    text = missing_extra(error) or str(error).strip()
    ours = re.findall(r"\bkafkalake\.(?:errors|spark)\.\w+: (.+)$", text, flags=re.MULTILINE)
    if ours:
        return str(ours[-1])
    if "DELTA_PATH_EXISTS" in text:
        return f"{text.splitlines()[0]} (--mode append adds to it, --mode overwrite replaces it)"
    if "DATA_SOURCE_NOT_FOUND" in text and "delta" in text:
        return "Spark has no Delta here: add --properties-file spark-conf/spark-defaults.conf to spark-submit"
    if of_java := re.match(rf"An error occurred while calling .*\n: {_JAVA_CLASS}(.+)", text):
        causes = re.findall(rf"^Caused by: {_JAVA_CLASS}(.+)$", text, flags=re.MULTILINE)
        return of_java[1] if not causes or causes[-1] in of_java[1] else f"{of_java[1].rstrip('.')}: {causes[-1]}"
    first = text.splitlines()[0] if text else type(error).__name__
    of_stream = re.fullmatch(
        r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception: (.+?)(?: SQLSTATE: \w+)?", first
    )
    return of_stream[1] if of_stream else first
