"""What every store must do. `test_conformance.py` runs it over all back ends.

Where the interface leaves a choice (what a fenced write leaves behind, whose counts stand when a
bucket is closed twice) these tests don't look.
"""

from tests.storage.conformance_queues import QueueConformance
from tests.storage.conformance_settlements import SettlementConformance
from tests.storage.conformance_shards import ShardConformance
from tests.storage.conformance_usage import UsageConformance


class StoreConformance(QueueConformance, ShardConformance, SettlementConformance, UsageConformance):
    """Test methods that ask for the fixtures `store`, `reopen`, `tenant` and `owner`."""
