"""The type of what the jar asks: a JSON object. The function that answers it says which fields it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Question = Mapping[str, Any]

Answer = Callable[[Question], Any]
