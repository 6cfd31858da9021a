"""Settings of brokers, groups and client metrics change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafkalake.cluster.image import ClusterImage, ConfigOf, ConfigResource


def alter_config(image: ClusterImage, resource: ConfigResource, settings: Mapping[str, str]) -> ClusterImage:
    """Return the next version, in which these are all settings of a resource; the same image if they are already."""
    if settings == image.config.get(resource, {}):
        return image
    config = {known: each for known, each in image.config.items() if known != resource}
    if settings:
        config[resource] = dict(settings)
    return replace(image, version=image.version + 1, config=config)


def add_config(image: ClusterImage, found: ConfigOf) -> ClusterImage:
    """Return the next version, with settings that a broker has kept itself. Those that the image has already count."""
    config = dict(image.config)
    for resource, settings in found.items():
        if settings:
            config[resource] = {**settings, **config.get(resource, {})}
    return image if config == image.config else replace(image, version=image.version + 1, config=config)
