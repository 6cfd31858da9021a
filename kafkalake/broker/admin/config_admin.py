"""Changes settings of brokers, groups and client metrics on the controller, which commits them to the control store.

A broker's settings have three layers in Kafka: the command line, the cluster's default, one broker's own. The last wins. The two
dynamic ones are resources of the image, which every broker follows (`BrokerSettings.follow`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from kafkalake.broker.controller.controller import Controller
from kafkalake.cluster.config_changes import add_config, alter_config
from kafkalake.cluster.image import ClusterImage, ConfigOf, ConfigResource, ResourceKind
from kafkalake.errors import KafkaLakeError

logger = logging.getLogger(__name__)

Change = Callable[[dict[str, str]], Mapping[str, str | None]]
"""Maps the current settings of a resource to the new ones."""
Check = Callable[[str, Mapping[str, str | None]], Mapping[str, str]]
"""(name of a resource, its new settings) -> the settings as they are kept. Raises `InvalidConfigError`, `InvalidRequestError`."""


class ConfigElsewhere(Protocol):
    """The controller on another broker, as far as settings are concerned."""

    async def alter_config(self, settings: ConfigOf) -> None:
        """Have settings set. Raise the first error of a resource, `BrokerUnavailableError` if the controller does not answer."""
        ...


class ConfigAdmin:
    """The changes of settings on one broker. `image` returns the image that is followed here."""

    def __init__(
        self,
        controller: Controller,
        image: Callable[[], ClusterImage],
        elsewhere: ConfigElsewhere,
        look: Callable[[], Awaitable[None]],
        checks: Mapping[ResourceKind, Check],
    ) -> None:
        """`look` follows the newest version here."""
        self._controller = controller
        self._image = image
        self._elsewhere = elsewhere
        self._look = look
        self._checks = checks

    async def alter(self, resource: ConfigResource, change: Change, *, changed_by: str, validate_only: bool) -> None:
        """Apply `change` to the settings of a resource. `changed_by` is for the log.

        Raise `InvalidConfigError` or `InvalidRequestError` if the new settings are not valid, `NotControllerError` and
        `KafkaStorageError` as `Controller.change`.
        """
        changes: list[tuple[str, str | None, str | None]] = []

        def alter(image: ClusterImage) -> ClusterImage:
            before = image.config.get(resource, {})
            after = self._checks[resource.kind](resource.name, change(dict(before)))
            changes[:] = _differences(before, after)
            return alter_config(image, resource, after)

        if validate_only:
            alter(self._image())
            return
        await self._controller.change(alter, [])
        kind, of = resource
        for name, old, new in changes:
            if of:
                logger.info(
                    "%s setting changed of=%s name=%s old=%s new=%s by=%s", kind, of, name, old, new, changed_by
                )
            else:
                logger.info("%s setting changed name=%s old=%s new=%s by=%s", kind, name, old, new, changed_by)

    async def take(self, kept: ConfigOf) -> None:
        """Hand settings that this broker kept in files over to the cluster; those that the cluster has already count.

        Raise `KafkaLakeError` if the controller does not take them.
        """
        if self._controller.is_active:
            await self._controller.change(lambda image: add_config(image, kept), [])
        else:
            await self._elsewhere.alter_config(_missing(self._image().config, kept))
            await self._look()
        logger.info("settings handed over to the cluster resources=%d", len(kept))

    async def catch_up(self) -> None:
        """Follow a change that the controller, on another broker, has made, so that a client of this one reads what it wrote."""
        try:
            await self._look()
        except KafkaLakeError as error:
            logger.warning("whether there is a newer version of the cluster is not known error=%s", error)


def _missing(there: ConfigOf, kept: ConfigOf) -> ConfigOf:
    missing = {
        resource: {name: text for name, text in own.items() if name not in there.get(resource, {})}
        for resource, own in kept.items()
    }
    return {resource: own for resource, own in missing.items() if own}


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[tuple[str, str | None, str | None]]:
    """Yield (name, old value, new value) of the settings that differ, by name."""
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield name, before.get(name), after.get(name)
