"""Values of options that need no conversion: typer would have pydantic return each as it is.

The import of pydantic is a quarter of the processor time of a short command. It stays for numbers, paths and choices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class PlainValues:
    """Converts the values of one parameter. `converter` returns typer's own conversion, which is made when it is first needed."""

    def __init__(self, descriptor: Any, converter: Callable[[], Any]) -> None:
        has_parser = descriptor.parameter_info.parser is not None
        self._is_text = descriptor.annotation is str and not has_parser
        self._is_texts = descriptor.annotation == list[str] and not has_parser
        self._converter = converter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value for the command. Raise typer's usage error if it is invalid."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self._is_text and isinstance(value, str):
            return value
        if self._is_texts and isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
            return list(value)
        return self._converter().coerce(value, param=param, ctx=ctx)


def keep_plain_values(parameter: Any) -> None:
    """Have a parameter of a command import nothing for values that stay as they are. An older typer converts without pydantic."""
    descriptor = getattr(parameter, "type_descriptor", None)
    converter = getattr(parameter, "get_runtime_param", None)
    if descriptor is not None and converter is not None:
        values = PlainValues(descriptor, converter)
        parameter.get_runtime_param = lambda: values
