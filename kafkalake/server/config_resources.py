"""The kinds of resources that have settings, numbered as in Kafka's requests."""

from __future__ import annotations

from kafkalake.cluster.image import ResourceKind

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

RESOURCE_TYPES = {ResourceKind.BROKER: BROKER, ResourceKind.GROUP: GROUP, ResourceKind.CLIENT_METRICS: CLIENT_METRICS}
"""The numbers of the kinds that are in the cluster's image."""
