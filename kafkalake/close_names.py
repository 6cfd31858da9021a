"""Suggests names that a user may have meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def did_you_mean(
    name: str, known: Iterable[str], *, most: int = 2, cutoff: float = 0.6, show: Callable[[str], str] = repr
) -> str | None:
    """Return `did you mean 'x'?`, or None if no known name is close to `name`.

    most: number of suggestions. cutoff: least similarity, up to 1. show: how a suggestion is written.
    """
    import difflib  # takes 7 ms

    names = list(known)
    close = difflib.get_close_matches(name, names, n=most, cutoff=cutoff)
    close = close or [found for found in names if _letters(found) == _letters(name)][:1]
    return f"did you mean {' or '.join(map(show, close))}?" if close else None


def unknown_setting_hint(names: Iterable[str], known: Iterable[str]) -> str | None:
    """Return suggestions for unknown settings."""
    known = list(known)
    hints = [f"'{name}': {close}" for name in names if name not in known and (close := did_you_mean(name, known))]
    return "; ".join(hints) or None


def _letters(name: str) -> str:
    return name.replace(".", "").replace("_", "").lower()
