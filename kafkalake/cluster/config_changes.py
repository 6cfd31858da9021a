"""Settings of brokers, groups and clients change."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kafkalake.cluster.image import ClusterImage, ConfigOf, ResourceKind, decide_together
from kafkalake.cluster.topic_changes import clear_eligible

MIN_ISR = "min.insync.replicas"


def alter_config(image: ClusterImage, changed: ConfigOf) -> ClusterImage:
    """Return the next version, in which these are all settings of these resources; the same image if they are already.

    Where the default of `min.insync.replicas` changes, no replica is eligible any more beside the ISRs (`clear_eligible`).
    """
    if all(settings == image.config.get(resource, {}) for resource, settings in changed.items()):
        return image
    config = {**image.config, **changed}
    after = replace(image, version=image.version + 1, config={each: own for each, own in config.items() if own})
    if not any(
        resource.kind is ResourceKind.BROKER and settings.get(MIN_ISR) != image.config.get(resource, {}).get(MIN_ISR)
        for resource, settings in changed.items()
    ):
        return after
    return decide_together(
        image, lambda _: after, *(partial(clear_eligible, topic_id=each) for each in after.partitions)
    )


def add_config(image: ClusterImage, found: ConfigOf) -> ClusterImage:
    """Return the next version, with settings that a broker has kept itself. Those that the image has already count."""
    config = dict(image.config)
    for resource, settings in found.items():
        if settings:
            config[resource] = {**settings, **config.get(resource, {})}
    return image if config == image.config else replace(image, version=image.version + 1, config=config)
