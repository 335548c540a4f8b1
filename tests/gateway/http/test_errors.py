"""Unknown fields, parameters and values are refused, with what was meant."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from pushlane_gateway.http.errors import with_hint
from pushlane_gateway.http.objects import QueueChanges, RedriveBody
from pushlane_gateway.http.table import OPERATIONS
from tests.gateway.http.rig import rig

Q = "/v1/queues/q"


@pytest.mark.parametrize(
    ("path", "body", "hint"),
    [
        ("/messages", {"messages": [{"body": 1}, {"body": 2, "delay": 5}]},
         "messages[1]: unknown field `delay`: did you mean delay_ms?"),
        ("/messages", {"messages": [{"body": 1, "zzz": 5}]}, "known are body, data, key,"),
        ("/messages", {"message": []}, "unknown field `message`: did you mean messages?"),
        ("/receive", {"wait": 5}, "did you mean wait_ms?"),
        ("/receive", {"MAX": 5}, "did you mean max?"),
        ("/ack", {"receipts": [], "receipt": "x"}, "did you mean receipts?"),
        ("/nack", {"receipts": [], "delay": 1}, "did you mean delay_ms?"),
        ("/extend", {"receipts": [], "lease_ms": 1, "leasems": 1}, "did you mean lease_ms?"),
        ("/purge", {"force": True}, "unknown field `force`: known are none"),
        ("/redrive", {"dryrun": True}, "did you mean dry_run?"),
        ("/redrive", {"cause": "rejcted"}, "cause: unknown value `rejcted`: did you mean rejected"),
        ("/redrive", {"cause": "?"}, "known are damaged, expired, late, max_attempts,"),
    ],
)  # fmt: skip
async def test_bodies(path: str, body: Any, hint: str) -> None:
    async with rig() as r:
        await r.queue()
        answer = await r.post(Q + path, body)
        assert answer.fault == (400, "bad_request")
        assert hint in answer.json["error"]["message"]
        assert (await r.stats("q"))["stored"] == 0


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("/v1/queues?limt=3", "query: unknown field `limt`: did you mean limit?"),
        (Q + "/peek?before=3", "known are limit, after"),
        (Q + "/stats?x=1", "unknown field `x`: known are none"),
        ("/v1/usage?queues=q", "did you mean queue?"),
        ("/v1/usage?by=hours", "by: unknown value `hours`: did you mean hour?"),
    ],
)
async def test_queries(target: str, hint: str) -> None:
    async with rig() as r:
        await r.queue()
        answer = await r.get(target)
        assert answer.fault == (400, "bad_request")
        assert hint in answer.json["error"]["message"]


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_settings_of_a_queue(method: str) -> None:
    async with rig() as r:
        await r.queue()
        answer = await r.ask(method, Q, {"max_attempt": 3})
        assert "did you mean max_attempts?" in answer.json["error"]["message"]
        answer = await r.ask(method, Q, {"overflow": "reject_all"})
        assert "overflow: unknown value `reject_all`" in answer.json["error"]["message"]


TRICKS = [
    "a` - at `$.zzz",
    "a` - at `$.zzz[0]",
    "a` - at `$[0]",
    "a` - at `$.messages",
    "a` - at `$.messages[0].body",
    "a` - at `$.cause",
    "a` - at `$.max",
    "a` - at `$.after[0].x",
]
"""Names that look like what msgspec says of a place."""


@pytest.mark.parametrize("name", TRICKS)
async def test_a_name_that_looks_like_a_place(name: str, caplog: pytest.LogCaptureFixture) -> None:
    bodies: dict[str, dict[str, Any]] = {"messages": {"messages": []}, "redrive": {}, "purge": {}}
    async with rig() as r:
        await r.queue()
        answers = [await r.post(f"{Q}/{what}", {**body, name: 1}) for what, body in bodies.items()]
        answers.append(await r.post(f"{Q}/messages", {"messages": [{"body": 1, name: 1}]}))
        answers.append(await r.post(f"{Q}/redrive", {"cause": name}))
        answers.append(await r.get(f"/v1/queues?{quote(name)}=1"))
        answers.append(await r.get(f"/v1/usage?by={quote(name)}"))
        answers.append(await r.post(f"/v1/pipe?{quote(name)}=1", {"frames": [{"op": "hello"}]}))
        assert [answer.fault for answer in answers] == [(400, "bad_request")] * len(answers)
    assert not caplog.records


def test_every_operation_refuses_what_it_does_not_know() -> None:
    """But for a pipe: that is the protocol."""
    for operation in OPERATIONS:
        for kind in (operation.body, operation.query):
            if kind is not None and operation.name != "pipe":
                config = kind.__struct_config__
                assert config.forbid_unknown_fields, operation.name


def test_what_is_no_such_fault_stays_as_it_is() -> None:
    assert with_hint(RedriveBody, "max: Expected `int`") == "max: Expected `int`"


def test_where_null_or_nothing_may_stand() -> None:
    with pytest.raises(msgspec.ValidationError) as fault:
        msgspec.convert({"overflow": "rejct"}, QueueChanges)
    assert with_hint(QueueChanges, str(fault.value)) == (
        "overflow: unknown value `rejct`: did you mean reject? "
        "(known are dead_letter, drop_oldest, reject)"
    )
