"""Types of the arguments of jobs, for argparse."""

from __future__ import annotations

import argparse

LARGEST = 1e9


def number(text: str) -> float:
    """Return a number. Raise `ValueError` for what is none, `argparse.ArgumentTypeError` for NaN and what is beyond `LARGEST`."""
    found = float(text)
    if not abs(found) <= LARGEST:  # NaN is not
        raise argparse.ArgumentTypeError(f"{text!r} is no number up to {LARGEST:,.0f}")
    return found
