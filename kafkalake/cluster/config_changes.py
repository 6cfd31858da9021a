"""Settings of brokers, groups and clients change."""

from __future__ import annotations

from dataclasses import replace

from kafkalake.cluster.image import ClusterImage, ConfigOf


def alter_config(image: ClusterImage, changed: ConfigOf) -> ClusterImage:
    """Return the next version, in which these are all settings of these resources; the same image if they are already."""
    if all(settings == image.config.get(resource, {}) for resource, settings in changed.items()):
        return image
    config = {**image.config, **changed}
    return replace(image, version=image.version + 1, config={each: own for each, own in config.items() if own})


def add_config(image: ClusterImage, found: ConfigOf) -> ClusterImage:
    """Return the next version, with settings that a broker has kept itself. Those that the image has already count."""
    config = dict(image.config)
    for resource, settings in found.items():
        if settings:
            config[resource] = {**settings, **config.get(resource, {})}
    return image if config == image.config else replace(image, version=image.version + 1, config=config)
