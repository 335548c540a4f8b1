"""Usage counters."""

from collections.abc import Awaitable, Callable

import trio

from pushlane_storage.interface import Backend
from pushlane_storage.usage import Usage, UsageKey

Reopen = Callable[[], Awaitable[Backend]]


class UsageConformance:
    async def test_a_row_is_replaced(self, store: Backend, reopen: Reopen, tenant: str) -> None:
        key = UsageKey(tenant, "orders", 100, "node-1")
        await store.usage.put([Usage(key, {"published": 2, "bytes_in": 1 << 40}, 1)])
        await store.usage.put([Usage(key, {"published": 3, "dead.max_attempts": -1}, 2)])
        store = await reopen()
        expected = Usage(key, {"published": 3, "dead.max_attempts": -1}, 2)
        assert await store.usage.read(tenant, 100, 100) == [expected]
        await store.usage.put([expected])
        assert await store.usage.find(key) == expected

    async def test_a_lower_version_is_ignored(self, store: Backend, tenant: str) -> None:
        key = UsageKey(tenant, "orders", 100, "id/0")
        newest = Usage(key, {"published": 1}, 7 << 32)
        await store.usage.put([newest])
        await store.usage.put([Usage(key, {"published": 9, "acked": 9}, (6 << 32) + 12_345)])
        assert await store.usage.read(tenant, 100, 100) == [newest]
        after = Usage(key, {"acked": 1}, (7 << 32) + 1)
        await store.usage.put([after])
        assert await store.usage.find(key) == after

    async def test_what_is_not_there_is_not_found(self, store: Backend, tenant: str) -> None:
        key = UsageKey(tenant, "orders", 0, "id/0")
        assert await store.usage.find(key) is None
        await store.usage.put([Usage(UsageKey(tenant, "orders", 0, "id/1"), {}, 1)])
        assert await store.usage.find(key) is None
        assert [row.key.node for row in await store.usage.read(tenant, 0, 0)] == ["id/1"]
        assert await store.usage.read(tenant, 1, 10_000) == []

    async def test_rows_are_read_by_minutes_in_order(self, store: Backend, tenant: str) -> None:
        keys = [
            UsageKey(tenant, queue, minute, node)
            for node in ("b", "a")
            for minute in (1501, 99, 100, 1440)
            for queue in ("orders", "mails")
        ]
        await store.usage.put([Usage(key, {"acked": key.minute}) for key in keys])
        assert await store.usage.read(tenant, 0, 10_000) == [
            Usage(key, {"acked": key.minute}) for key in sorted(keys)
        ]
        found = await store.usage.read(tenant, 100, 1440)
        within = sorted(key for key in keys if 100 <= key.minute <= 1440)
        assert [usage.key for usage in found] == within
        assert await store.usage.read(tenant, 101, 1439) == []
        found = await store.usage.read(tenant, 100, 1440, "mails")
        assert [usage.key for usage in found] == [key for key in within if key.queue == "mails"]

    async def test_tenants_have_rows_of_their_own(self, store: Backend, tenant: str) -> None:
        other = tenant + "x"
        mine = Usage(UsageKey(tenant, "orders", 1, "node-1"), {"acked": 1})
        theirs = Usage(UsageKey(other, "orders", 1, "node-1"), {"acked": 2})
        await store.usage.put([mine, theirs])
        await store.usage.put([])
        assert await store.usage.read(tenant, 0, 9) == [mine]
        assert await store.usage.read(other, 0, 9) == [theirs]

    async def test_of_many_writers_the_highest_version_wins(
        self, store: Backend, tenant: str
    ) -> None:
        key = UsageKey(tenant, "orders", 1, "node-1")
        async with trio.open_nursery() as nursery:
            for version in (5, 19, 2, 11, 17, 3, 8):
                nursery.start_soon(store.usage.put, [Usage(key, {"acked": version}, version)])
        assert await store.usage.read(tenant, 1, 1) == [Usage(key, {"acked": 19}, 19)]

    async def test_what_was_read_is_the_reader_s_own(self, store: Backend, tenant: str) -> None:
        usage = Usage(UsageKey(tenant, "orders", 1, "node-1"), {"acked": 1})
        await store.usage.put([usage])
        [found] = await store.usage.read(tenant, 1, 1)
        found.counters["acked"] = 99
        assert await store.usage.read(tenant, 1, 1) == [usage]
