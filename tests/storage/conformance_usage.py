"""Usage counters."""

from collections.abc import Awaitable, Callable

import trio

from pushlane_storage.interface import Store
from pushlane_storage.usage import Usage, UsageKey

Reopen = Callable[[], Awaitable[Store]]


class UsageConformance:
    async def test_counters_add_up(self, store: Store, reopen: Reopen, tenant: str) -> None:
        key = UsageKey(tenant, "orders", 100, "node-1")
        await store.add_usage([Usage(key, {"published": 2, "bytes_in": 1 << 40})])
        await store.add_usage([Usage(key, {"published": 3}), Usage(key, {"dead.max_attempts": 1})])
        store = await reopen()
        await store.add_usage([Usage(key, {"published": 1})])
        expected = {"published": 6, "bytes_in": 1 << 40, "dead.max_attempts": 1}
        assert await store.usage(tenant, 100, 100) == [Usage(key, expected)]

    async def test_counters_are_read_by_minutes_in_order(self, store: Store, tenant: str) -> None:
        keys = [
            UsageKey(tenant, queue, minute, node)
            for node in ("b", "a")
            for minute in (1501, 99, 100, 1440)
            for queue in ("orders", "mails")
        ]
        await store.add_usage([Usage(key, {"acked": key.minute}) for key in keys])
        assert await store.usage(tenant, 0, 10_000) == [
            Usage(key, {"acked": key.minute}) for key in sorted(keys)
        ]
        found = await store.usage(tenant, 100, 1440)
        assert [usage.key for usage in found] == sorted(
            key for key in keys if 100 <= key.minute <= 1440
        )
        assert await store.usage(tenant, 101, 1439) == []

    async def test_tenants_have_counters_of_their_own(self, store: Store, tenant: str) -> None:
        other = tenant + "x"
        mine = Usage(UsageKey(tenant, "orders", 1, "node-1"), {"acked": 1})
        theirs = Usage(UsageKey(other, "orders", 1, "node-1"), {"acked": 2})
        await store.add_usage([mine, theirs])
        await store.add_usage([])
        assert await store.usage(tenant, 0, 9) == [mine]
        assert await store.usage(other, 0, 9) == [theirs]

    async def test_nothing_is_lost_among_many_writers(self, store: Store, tenant: str) -> None:
        usage = [Usage(UsageKey(tenant, "orders", 1, "node-1"), {"acked": 3})]
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(store.add_usage, usage)
        [found] = await store.usage(tenant, 1, 1)
        assert found.counters == {"acked": 60}

    async def test_what_was_read_is_the_reader_s_own(self, store: Store, tenant: str) -> None:
        usage = Usage(UsageKey(tenant, "orders", 1, "node-1"), {"acked": 1})
        await store.add_usage([usage])
        [found] = await store.usage(tenant, 1, 1)
        found.counters["acked"] = 99
        assert await store.usage(tenant, 1, 1) == [usage]
