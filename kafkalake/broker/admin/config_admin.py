"""Changes settings of brokers, groups and clients on the controller, which commits them to the control store.

A broker's settings have three layers in Kafka: the command line, the cluster's default, one broker's own. The last wins. The two
dynamic ones are resources of the image, which every broker follows (`BrokerSettings.follow`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from kafkalake.broker.controller.controller import Controller
from kafkalake.cluster.config_changes import add_config, alter_config
from kafkalake.cluster.image import ClusterImage, ConfigOf, ConfigResource, ResourceKind
from kafkalake.config.setting_texts import TEXT_MAX
from kafkalake.errors import (
    InvalidConfigError,
    InvalidRequestError,
    KafkaError,
    KafkaLakeError,
    PolicyViolationError,
    as_value,
)

logger = logging.getLogger(__name__)

RESOURCES_MAX = {ResourceKind.GROUP: 100_000}
OTHER_RESOURCES_MAX = 10_000
"""The most resources of a kind with settings of their own."""
SETTINGS_BYTES_MAX = 64 * 1024 * 1024
"""The most that all settings and the names of their resources take together: every broker has them in memory."""
CHANGES_MAX = 1_000
"""The most resources that one version changes."""

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
        errors = await self.alter_all({resource: change}, changed_by=changed_by, validate_only=validate_only)
        if resource in errors:
            raise errors[resource]

    async def alter_all(
        self, changes: Mapping[ConfigResource, Change], *, changed_by: str, validate_only: bool
    ) -> dict[ConfigResource, KafkaError]:
        """Apply changes to several resources in one version, as `alter`. Return the errors of those that are not valid.

        Raise `PolicyViolationError` if they are more than `CHANGES_MAX`.
        """
        check_number(len(changes))
        before: ConfigOf = {}
        after: dict[ConfigResource, Mapping[str, str]] = {}
        errors: dict[ConfigResource, KafkaError] = {}

        def alter(image: ClusterImage) -> ClusterImage:
            nonlocal before
            before = image.config
            after.clear()
            errors.clear()
            present = _Present(before)
            for resource, change in changes.items():
                try:
                    after[resource] = self._altered(resource, change, present)
                except KafkaError as error:
                    errors[resource] = as_value(error)
            return alter_config(image, after)

        def check(image: ClusterImage) -> ClusterImage:
            alter(image)
            return image

        if validate_only:
            await self._controller.change(check, [])  # a deposed controller has the settings of before
            return errors
        await self._controller.change(alter, [])
        for resource, settings in after.items():
            _log_differences(resource, before.get(resource, {}), settings, changed_by)
        return errors

    def _altered(self, resource: ConfigResource, change: Change, present: _Present) -> Mapping[str, str]:
        """Return the new settings of a resource. Raise `InvalidConfigError` or `InvalidRequestError` if they are not valid.

        present: the settings of all resources, in which these count from now on.
        """
        if resource.kind is not ResourceKind.CLIENT_QUOTA:  # whose names are checked one by one
            check_name(resource.name)
        settings = self._checks[resource.kind](resource.name, change(dict(present.config.get(resource, {}))))
        present.count(resource, settings)
        return settings

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


class _Present:
    """The settings of all resources, and how many and how large they are while a request changes some of them."""

    def __init__(self, config: ConfigOf) -> None:
        self.config = config
        self._numbers = Counter(each.kind for each in config)
        self._bytes = sum(_bytes_of(*each) for each in config.items())

    def count(self, resource: ConfigResource, settings: Mapping[str, str]) -> None:
        """Count the new settings of a resource. Raise `InvalidConfigError` if there would be too many or too much."""
        limit = RESOURCES_MAX.get(resource.kind, OTHER_RESOURCES_MAX)
        more = bool(settings) - (resource in self.config)
        if more > 0 and self._numbers[resource.kind] >= limit:
            raise InvalidConfigError(f"More than {limit} resources of the kind {resource.kind} with settings.")
        grown = _bytes_of(resource, settings) - _bytes_of(resource, self.config.get(resource, {}))
        if grown > 0 and self._bytes + grown > SETTINGS_BYTES_MAX:
            raise InvalidConfigError(f"All settings would have more than {SETTINGS_BYTES_MAX} characters.")
        self._numbers[resource.kind] += more
        self._bytes += grown


def _bytes_of(resource: ConfigResource, settings: Mapping[str, str]) -> int:
    """Return about what settings take in memory, none for none."""
    return len(resource.name) + sum(map(len, settings.values())) if settings else 0


def check_name(name: str) -> None:
    """Raise `InvalidRequestError` if the name of a resource is longer than Kafka's protocol can have it."""
    if len(name.encode()) > TEXT_MAX:
        raise InvalidRequestError(f"The name of a resource must have at most {TEXT_MAX} bytes.")


def check_number(changes: int) -> None:
    """Raise `PolicyViolationError` if one version cannot change as many resources."""
    if changes > CHANGES_MAX:
        raise PolicyViolationError("Unable to perform excessively large batch operation.")


def _missing(there: ConfigOf, kept: ConfigOf) -> ConfigOf:
    missing = {
        resource: {name: text for name, text in own.items() if name not in there.get(resource, {})}
        for resource, own in kept.items()
    }
    return {resource: own for resource, own in missing.items() if own}


def _log_differences(
    resource: ConfigResource, before: Mapping[str, str], after: Mapping[str, str], changed_by: str
) -> None:
    kind, of = resource
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if kind is ResourceKind.USER:
            logger.info("credential changed user=%s name=%s by=%s", of, name, changed_by)
        elif of:
            logger.info("%s setting changed of=%s name=%s old=%s new=%s by=%s", kind, of, name, old, new, changed_by)
        else:
            logger.info("%s setting changed name=%s old=%s new=%s by=%s", kind, name, old, new, changed_by)
