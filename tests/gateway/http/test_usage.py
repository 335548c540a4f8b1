"""Usage over HTTP: what queues did, exact for one queue, and who may see it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio

from pushlane.wire.parts import COUNTED_BYTES
from pushlane_dispatcher.settings import Settings
from pushlane_gateway.http.objects import BILLS
from pushlane_spark.billing.rate_card import ITEMS
from pushlane_storage.interface import StoreUnknown
from tests.dispatcher.rig import Consumer, ScriptedStore, fail
from tests.gateway.http.rig import START, TENANT, Rig, rig
from tests.running import runners_of

U = "/v1/usage"
HOUR = START // 3_600_000 * 3_600_000


async def work(r: Rig, name: str = "q") -> None:
    await r.post(f"/v1/queues/{name}/messages", {"messages": [{"body": 1}, {"body": 2}]})
    runner = runners_of(await r.dispatcher.open(TENANT, name))[0]
    consumer = Consumer(runner, acking=True)
    await trio.sleep(1)
    consumer.leave()


async def test_a_queue_is_exact_at_once() -> None:
    async with rig() as r:
        await work(r)
        answer = (await r.get(f"{U}?queue=q")).json
        assert answer["by"] == "hour"
        assert answer["until"] - answer["since"] >= 24 * 3_600_000
        [point] = answer["usage"]
        assert (point["queue"], point["at"]) == ("q", HOUR)
        assert (point["counters"]["published"], point["counters"]["acked"]) == (2, 2)
        assert point["latencies"]["ack_ms"]["count"] == 2
        assert set(point["latencies"]) == {"publish_ms", "delivery_ms", "ack_ms"}


async def test_a_tenant_s_usage_has_all_queues() -> None:
    async with rig() as r:
        await work(r, "a")
        await work(r, "b")
        r.dispatcher.usage_writer.connected(TENANT)
        found = (await r.get(f"{U}?by=day")).json["usage"]
        assert [point["queue"] for point in found] == ["", "a", "b"]
        assert found[0]["counters"]["connections"] == 1
        assert {point["counters"].get("published") for point in found[1:]} == {2}


async def test_stretches_and_times() -> None:
    async with rig() as r:
        await work(r)
        await trio.sleep(3_600)
        await work(r)
        hours = (await r.get(f"{U}?queue=q")).json["usage"]
        assert [point["at"] for point in hours] == [HOUR, HOUR + 3_600_000]
        until = HOUR + 3_600_000
        minutes = (await r.get(f"{U}?queue=q&by=minute&until={until}")).json["usage"]
        published = [p["at"] for p in minutes if "published" in p["counters"]]
        assert published == [START // 60_000 * 60_000]
        since = "2023-11-14T23:00:00Z"  # the hour after START
        late = (await r.get(f"{U}?queue=q&since={since}")).json
        assert late["since"] == HOUR + 3_600_000
        assert [point["at"] for point in late["usage"]] == [HOUR + 3_600_000]
        same = (await r.get(f"{U}?queue=q&since=2023-11-15T00:00:00%2B01:00")).json
        assert same["since"] == late["since"]
        assert (await r.get(f"{U}?since=2023-11-14")).status == 200


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("by=week", "by"),
        ("queue=..", "queue"),
        ("since=yesterday", "since is not a time"),
        ("since=-5", "since is not a time"),
        ("since=99999999999999999999", "since is not a time"),
        ("until=2023-99-14", "until is not a time"),
        ("since=2000&until=2000", "since must be before until"),
        ("since=0&by=minute", "more than 1500 times a minute"),
        ("since=0&until=99999999999999&by=day", "more than 1500 times a day"),
    ],
)
async def test_what_is_refused(query: str, what: str) -> None:
    async with rig() as r:
        answer = await r.get(f"{U}?{query}")
        assert answer.fault == (400, "bad_request")
        assert what in answer.json["error"]["message"]


async def test_an_answer_has_a_limit() -> None:
    async with rig(usage_answers=2) as r:
        for name in ("a", "b"):
            await work(r, name)
        assert (await r.get(f"{U}?by=day")).status == 200
        await work(r, "c")
        answer = await r.get(f"{U}?by=day")
        assert answer.fault == (400, "bad_request")
        assert "more than 2 lines" in answer.json["error"]["message"]
        assert (await r.get(f"{U}?by=day&queue=c")).status == 200


async def test_a_queue_that_is_gone_has_its_past() -> None:
    async with rig() as r:
        await work(r)
        await r.delete("/v1/queues/q?confirm=q")
        [point] = (await r.get(f"{U}?queue=q")).json["usage"]
        assert point["counters"]["published"] == 2
        assert (await r.get(f"{U}?queue=never")).json["usage"] == []


async def test_who_may_see_it(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys") as r:
        boss, some = r.caller("admin:*"), r.caller("manage:a*", "publish:*", "consume:*")
        operator = r.caller("operate:*", tenant="company")
        for name in ("a1", "b1"):
            await boss.post(f"/v1/queues/{name}/messages", {"messages": [{"body": 1}]})
        r.dispatcher.usage_writer.connected("default")
        seen = (await boss.get(U)).json["usage"]
        assert {point["queue"] for point in seen} == {"", "a1", "b1"}
        assert {point["queue"] for point in (await some.get(U)).json["usage"]} == {"a1"}
        assert (await some.get(f"{U}?queue=b1")).fault == (403, "forbidden")
        assert (await some.get(f"{U}?queue=a1")).status == 200
        assert (await r.get(U)).status == 401
        bill = {"queue": "a1", "minute": 1, "costs": {"billing.day.total": 1}}
        bills = {"tenant": "default", "bills": [bill]}
        for tenants_own in (some, boss):
            assert (await tenants_own.put(f"{U}/bills", bills)).fault == (403, "forbidden")
        assert (await operator.put(f"{U}/bills", bills)).status == 200
        [billed] = (await boss.get(f"{U}?since=0&by=day&until=86400000")).json["usage"]
        assert billed["counters"]["billing.day.total"] == 1
        assert (await operator.get(f"{U}?queue=a1")).fault == (403, "forbidden")


async def test_a_store_that_fails_is_unavailable() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        await work(r)
        store.script.always["put_usage"] = fail(StoreUnknown("planted"))
        assert (await r.get(f"{U}?queue=q")).fault == (503, "unavailable")
        del store.script.always["put_usage"]
        store.script.always["usage"] = fail(StoreUnknown("planted"))
        assert (await r.get(f"{U}?queue=q")).fault == (503, "unavailable")
        store.script.always.clear()
        [point] = (await r.get(f"{U}?queue=q")).json["usage"]
        assert point["counters"]["published"] == 2


async def test_there_is_none_when_nobody_counts() -> None:
    async with rig(dispatching=Settings(usage=False)) as r:
        await work(r)
        assert (await r.get(f"{U}?queue=q")).json["usage"] == []


async def test_bills_stand_beside_what_they_are_for() -> None:
    async with rig() as r:
        await work(r)
        minute = HOUR // 60_000
        for total in (7, 5):  # the second one takes the place of the first
            bill = {"queue": "q", "minute": minute, "costs": {"billing.hour.total": total}}
            answer = await r.put(f"{U}/bills", {"tenant": TENANT, "bills": [bill]})
            assert answer.status == 200
        [point] = (await r.get(f"{U}?queue=q")).json["usage"]
        assert (point["counters"]["published"], point["counters"]["billing.hour.total"]) == (2, 5)


async def test_as_many_bills_as_a_request_may_have() -> None:
    names = [item.counter for item in ITEMS.values()]
    costs = {f"billing.hour.{name}": 1_234 for name in [*names, "total"]}
    minute = HOUR // 60_000
    bills = [
        {"queue": "orders.incoming", "minute": minute + 60 * number, "costs": costs}
        for number in range(BILLS)
    ]
    body = {"tenant": TENANT, "bills": bills}
    assert len(msgspec.json.encode(body)) > COUNTED_BYTES
    async with rig() as r:
        assert (await r.put(f"{U}/bills", body)).status == 200
        asked = f"{U}?queue=orders.incoming&since={HOUR}&until={HOUR + 1}"
        [point] = (await r.get(asked)).json["usage"]
        assert point["counters"] == costs


@pytest.mark.parametrize(
    ("tenant", "minute", "name", "status"),
    [
        ("not a tenant", 1, "billing.hour.total", 400),
        (TENANT, 0, "billing.hour.total", 400),
        (TENANT, 1, "published", 400),
    ],
)
async def test_bills_that_are_none(tenant: str, minute: int, name: str, status: int) -> None:
    async with rig() as r:
        bill = {"queue": "q", "minute": minute, "costs": {name: 1}}
        answer = await r.put(f"{U}/bills", {"tenant": tenant, "bills": [bill]})
        assert answer.status == status
