"""What every store must do. `test_conformance.py` runs it over all back ends.

Where the interface leaves a choice (what a fenced write leaves behind, whose counts stand when a
bucket is closed twice) these tests don't look.
"""

import time

import trio

from pushlane_storage.interface import Backend
from tests.storage.conformance_catalog import CatalogConformance
from tests.storage.conformance_members import MemberConformance
from tests.storage.conformance_ownership import OwnershipConformance
from tests.storage.conformance_settlements import SettlementConformance
from tests.storage.conformance_shards import ShardConformance
from tests.storage.conformance_usage import UsageConformance


class StoreConformance(
    OwnershipConformance,
    MemberConformance,
    CatalogConformance,
    ShardConformance,
    SettlementConformance,
    UsageConformance,
):
    """Test methods that ask for the fixtures `store`, `reopen`, `tenant` and `owner`."""

    async def test_a_clock_of_its_own_goes_and_tells_the_time(self, store: Backend) -> None:
        told = await store.time()
        if told is None:
            return
        assert abs(told - time.time() * 1000) < 60_000
        for _ in range(1_000):
            await trio.sleep(0.001)
            if await store.time() != told:
                return
        raise AssertionError("it stands still")
