"""Settings of the cluster's resources: what they may become is answered by the newest version."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from unittest.mock import AsyncMock

import pytest
from broker.controller_term import Term

from kafkalake.broker.admin.config_admin import ConfigAdmin
from kafkalake.cluster.controller_election import claim
from kafkalake.cluster.image import ConfigResource, ResourceKind
from kafkalake.errors import InvalidConfigError, NotControllerError

BROKER = ConfigResource(ResourceKind.BROKER, "0")


def check(name: str, settings: Mapping[str, str | None]) -> Mapping[str, str]:
    if None in settings.values():
        raise InvalidConfigError("a value is missing")
    return {each: value for each, value in settings.items() if value is not None}


@pytest.mark.parametrize("value", ["1", None], ids=["valid", "not valid"])
def test_whether_settings_are_valid_is_no_answer_of_a_deposed_controller(value: str | None) -> None:
    async def run() -> None:
        term = Term()
        admin = ConfigAdmin(
            term.controller, lambda: term.newest, AsyncMock(), AsyncMock(), {ResourceKind.BROKER: check}
        )

        async def validate() -> bool:
            try:
                await admin.alter(BROKER, lambda now: {"some": value}, changed_by="test", validate_only=True)
            except InvalidConfigError:
                return False
            return True

        assert await validate() == (value is not None)
        term.store.commit(claim(term.newest, 1))
        for _ in range(2):
            with pytest.raises(NotControllerError):
                await validate()
        assert term.newest.config == {}

    asyncio.run(run())
