"""Options and arguments shared by several commands, so that they look and behave the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from kafkalake.cli.completion import complete_group, complete_topic
from kafkalake.cli.output import Failure, UsageProblem

if TYPE_CHECKING:
    from kafkalake.client.administration.blocking import Admin

Options = TypeVar("Options")

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
CLIENT_ID = "kafkalake-cli"

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="KAFKALAKE_BOOTSTRAP_SERVERS",
        metavar="HOST:PORT",
        help="A broker of the cluster, or several: HOST:PORT,HOST:PORT.",
        rich_help_panel="Connection",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys, for programs.")]


def parse_lake(text: str) -> Path:
    """Return the path of a lake, which may be a file: URI. Raise `ConfigurationError` for another URI."""
    from kafkalake.metadata.paths import lake_directory

    return lake_directory(text)


def lake_option(help: str) -> Any:
    """Return the option that names a lake."""
    return typer.Option(
        "--lake", "-l", parser=parse_lake, envvar="KAFKALAKE_LAKE", metavar="DIR", help=help, show_default=False
    )


Lake = Annotated[Path, lake_option("The lake's directory.")]


TopicName = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False, autocompletion=complete_topic),
]


GroupName = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False, autocompletion=complete_group),
]


def with_options(kind: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Return a decorator for a command that takes its options as one dataclass: typer sees each field as a parameter."""

    def decorate(command: Callable[[Options], None]) -> Callable[..., None]:
        def run(**values: object) -> None:
            command(kind(**values))

        hints = get_type_hints(kind, include_extras=True)
        run.__signature__ = Signature(  # type: ignore[attr-defined]
            [
                Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
                for each in signature(kind).parameters.values()
            ]
        )
        run.__annotations__, run.__name__, run.__doc__ = hints, command.__name__, command.__doc__
        return run

    return decorate


def connect(bootstrap_server: str, *, timeout_ms: int = 30_000) -> Admin:
    """Return a client of the cluster at an address. Nothing is sent yet. timeout_ms: of each operation."""
    from kafkalake.client.administration.blocking import Admin

    return Admin(
        bootstrap_servers=bootstrap_server,
        client_id=CLIENT_ID,
        first_contact_ms=0,
        request_timeout_ms=timeout_ms,
        default_api_timeout_ms=timeout_ms,
    )


def settings_of_topic(admin: Admin, topic: str) -> dict[str, str | None]:
    """Return the settings of a topic, none of a broker that does not let everyone know."""
    from kafkalake.client.administration.configs import TOPIC_RESOURCE
    from kafkalake.errors import KafkaError

    try:
        entries = admin.describe_configs(TOPIC_RESOURCE, [topic])[topic]
    except KafkaError:
        return {}
    return {entry.name: entry.value for entry in entries}


def require_delayed_delivery(admin: Admin, topic: str) -> None:
    """Raise `Failure` if a topic is known to deliver records at once, whatever their headers say."""
    settings = settings_of_topic(admin, topic)
    if settings and settings.get("delayed.delivery.enable") != "true" and settings.get("delay.level") is None:
        raise Failure(
            f"topic {topic} delivers at once: its setting delayed.delivery.enable is not true",
            f"kafkalake topics alter {topic} --config delayed.delivery.enable=true",
        )


def parse_pairs(pairs: Iterable[str], option: str) -> dict[str, str]:
    """Return `["a=b", "c="]` as a dictionary, in the given order. Raise `UsageProblem` for one without `=` or a name."""
    return dict(parse_pairs_that_repeat(pairs, option))


def parse_pairs_that_repeat(pairs: Iterable[str], option: str) -> list[tuple[str, str]]:
    """Return `["a=b", "a="]` as pairs, in the given order. Raise `UsageProblem` for one without `=` or a name."""
    parsed = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageProblem(f"{option} takes KEY=VALUE, not '{pair}'")
        parsed.append((name.strip(), value.strip()))
    return parsed
