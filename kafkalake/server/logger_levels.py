"""The levels of this broker's loggers, which clients read and change as a resource. They last until the broker ends."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kafkalake.errors import InvalidConfigError, InvalidRequestError

ROOT = "root"
_PACKAGE = "kafkalake"
_LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": 5,
    "WARN": logging.WARNING,
}
"""Kafka's names of levels."""


def describe_loggers() -> dict[str, str]:
    """Return the effective level of each logger, by name."""
    return {name: _name(logger.getEffectiveLevel()) for name, logger in _loggers().items()}


def own_levels() -> dict[str, str]:
    """Return the levels of the loggers that have one of their own."""
    return {name: _name(logger.level) for name, logger in _loggers().items() if logger.level}


def change_levels(levels: Mapping[str, str | None], *, validate_only: bool) -> None:
    """Give the loggers in `levels` these levels, and all others that of the logger above.

    Raise `InvalidConfigError` for an unknown logger or level, `InvalidRequestError` if the root would have none.
    """
    loggers = _loggers()
    for name, level in levels.items():
        check_logger(name)
        if level not in _LEVELS:
            raise InvalidConfigError(
                f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
                f"Valid log levels are {', '.join(_LEVELS)}"
            )
    if ROOT in own_levels() and ROOT not in levels:
        raise InvalidRequestError("Removing the log level of the root logger is not allowed")
    if not validate_only:
        for name, logger in loggers.items():
            logger.setLevel(_LEVELS.get(levels.get(name) or "", logging.NOTSET))


def check_logger(name: str) -> None:
    """Raise `InvalidConfigError` if there is no logger of this name."""
    if name not in _loggers():
        raise InvalidConfigError(f"Logger {name} does not exist!")


def _loggers() -> dict[str, logging.Logger]:
    known = logging.root.manager.loggerDict
    found = {name: each for name, each in sorted(known.items()) if name.startswith(f"{_PACKAGE}.")}
    return {
        ROOT: logging.getLogger(_PACKAGE),
        **{name: each for name, each in found.items() if isinstance(each, logging.Logger)},
    }


def _name(level: int) -> str:
    """Return the name of the highest level that shows no less than `level` does."""
    return max((number, name) for name, number in _LEVELS.items() if number <= max(level, 5))[1]
