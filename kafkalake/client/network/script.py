"""Operations that send requests and wait for them, as generators. An edge of either kind runs them."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Script: TypeAlias = Generator[int, None, T]
"""Yields until when it waits for news at most, in ms of the client's monotonic clock; returns its result."""
