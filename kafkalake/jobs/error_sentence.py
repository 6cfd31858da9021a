"""One sentence of an error, whatever it went through: Python, the JVM, a worker's traceback in a Java exception's message."""

from __future__ import annotations

import re


def sentence(error: BaseException) -> str:
    """What an error says, without the stack of Python and the JVM around it."""
    text = str(error).strip()
    ours = re.findall(r"\bkafkalake\.errors\.\w+: (.+)$", text, flags=re.MULTILINE)
    if ours:
        return str(ours[-1])
    if "DELTA_PATH_EXISTS" in text:
        return f"{text.splitlines()[0]} (--mode append adds to it, --mode overwrite replaces it)"
    if "DATA_SOURCE_NOT_FOUND" in text and "delta" in text:
        return "Spark has no Delta here: add --properties-file spark-conf/spark-defaults.conf to spark-submit"
    return text.splitlines()[0] if text else type(error).__name__
