"""Queues: make, replace, change, look at, list and delete them.

POST declares a queue: it makes one that is not there, and changes nothing of one that is. When that
one differs from what was said it is a `conflict`, unless only its being there matters (`ensure`).
PUT replaces a configuration, PATCH merges into it. Only who names `paused` pauses or resumes.

A queue's version changes with its configuration and is its ETag. `If-Match` (or `version` in the
body) makes a change conditional: somebody else's change meanwhile is a `conflict`. Without it PUT
takes the last word, and PATCH merges into whatever is there.

A queue that names another one for its dead letters fills it, so that takes the right to manage the
other one, too. A redrive takes the right to publish wherever its messages go.
"""

from __future__ import annotations

import re
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import msgspec
import trio
from msgspec import UNSET
from starlette.responses import Response

from pushlane.wire.errors import BadRequest, Conflict, NotFound, PushlaneError
from pushlane.wire.names import check_queue_name
from pushlane_dispatcher.node import Dispatcher, QueueConfig
from pushlane_dispatcher.port import QueueRow, Redrive, Standing
from pushlane_gateway.auth.rule import Action
from pushlane_gateway.http.call import Call
from pushlane_gateway.http.listing import list_visible
from pushlane_gateway.http.objects import (
    ConsumersAnswer,
    CreateQuery,
    DeleteQuery,
    ListQuery,
    Nothing,
    PurgeAnswer,
    QueuePage,
    RedriveAnswer,
    RedriveBody,
    RetentionAnswer,
    RetentionBody,
    config_of,
    given,
    listed_object,
    queue_object,
)

ANY: tuple[Action, ...] = ("publish", "consume", "manage")
MERGES = 5
"""How often a change without a version is tried when others change the queue at the same time."""

_TAG = re.compile(r'(?:W/)?"([1-9][0-9]{0,15})"')


async def create(call: Call) -> Response:
    wanted = given(await call.body())
    name = check_queue_name(wanted.pop("name"))
    call.need(("manage",), name)
    row = await _existing(call, name)
    if row is None:
        config = QueueConfig(**wanted)
        _check_target(call, config, None)
        try:
            return _show(call, await _dispatcher(call).create(call.tenant, name, config), 201)
        except Conflict:
            row = await _existing(call, name)
            if row is None:
                raise
    if not call.query(CreateQuery).ensure:
        _check_same(row, wanted)
    return _show(call, row)


async def put(call: Call) -> Response:
    body = await call.body()
    _check_name(call, body.name)
    version = _version(call, body.version)
    must_be_new = _must_be_new(call)
    for again in reversed(range(MERGES)):
        row = await _existing(call, call.queue)
        if row is None and (version is not None or call.header("if-match") is not None):
            raise Conflict(f"there is no queue {call.queue}")
        if row is not None and must_be_new:
            raise Conflict(f"queue {call.queue} exists")
        try:
            return await _put(call, body, row, version)
        except Conflict:
            if version is not None or must_be_new or not again:
                raise
    raise AssertionError


async def _put(call: Call, body: Any, row: QueueRow | None, version: int | None) -> Response:
    """Raises Conflict when the queue was changed since its row was read."""
    config = config_of(body, None if row is None else row.config)
    _check_target(call, config, None if row is None else row.config)
    if row is None:
        return _show(call, await _dispatcher(call).create(call.tenant, call.queue, config), 201)
    if body.paused is None:
        version = version or row.version  # else it would undo a pause of just now
    return _show(call, await _update(call, config, version))


async def patch(call: Call) -> Response:
    changes = given(await call.body())
    _check_name(call, changes.pop("name", None))
    version = _version(call, changes.pop("version", None))
    return _show(call, await _merge(call, changes, version))


async def _merge(call: Call, changes: dict[str, Any], version: int | None) -> QueueRow:
    for again in reversed(range(MERGES)):
        row = await _dispatcher(call).get(call.tenant, call.queue)
        config = _merged(row.config, changes)
        _check_target(call, config, row.config)
        try:
            return await _update(call, config, version or row.version)
        except Conflict:
            if version is not None or not again:
                raise
    raise AssertionError


async def get(call: Call) -> Response:
    return _show(call, await _dispatcher(call).get(call.tenant, call.queue))


async def delete(call: Call) -> Response:
    if call.query(DeleteQuery).confirm != call.queue:
        raise BadRequest("confirm must be the queue's name")
    await _dispatcher(call).delete(call.tenant, call.queue)
    return call.answer(Nothing())


async def list_queues(call: Call) -> Response:
    """Those on which the caller has any right."""
    query = call.query(ListQuery)
    rows_after = partial(_dispatcher(call).list, call.tenant)
    seen, following = await list_visible(
        rows_after, call.identity.queues(*ANY), query.after, query.limit
    )
    looked = await _standings(call, seen) if query.stats else {}
    found = [listed_object(row, looked.get(row.name, UNSET)) for row in seen]
    return call.answer(QueuePage(found, following))


async def _standings(call: Call, rows: list[QueueRow]) -> dict[str, Standing | None]:
    """By name. Those that nobody has open are read from the store, for as long as there is time:
    None of the others, and of those that can't be read."""
    dispatcher = _dispatcher(call)
    found: dict[str, Standing | None] = {row.name: None for row in rows}
    with call.looking(), trio.move_on_after(call.context.settings.list_stats_ms / 1000) as scope:
        for row in sorted(rows, key=lambda row: not dispatcher.is_open(row.tenant, row.name)):
            with suppress(PushlaneError):
                found[row.name] = await dispatcher.standing(row.tenant, row.name)
    if scope.cancelled_caught:
        call.context.metrics.limits.add("list_stats_ms")
    return found


async def stats(call: Call) -> Response:
    with call.looking():
        return call.answer(await _dispatcher(call).stats(call.tenant, call.queue))


async def consumers(call: Call) -> Response:
    found = await _dispatcher(call).consumers(call.tenant, call.queue)
    return call.answer(ConsumersAnswer(found))


async def purge(call: Call) -> Response:
    await call.body()
    purged = await _dispatcher(call).purge(call.tenant, call.queue, call.claims)
    return call.answer(PurgeAnswer(purged))


async def pause(call: Call) -> Response:
    await call.body()
    return _show(call, await _merge(call, {"paused": True}, None))


async def resume(call: Call) -> Response:
    await call.body()
    return _show(call, await _merge(call, {"paused": False}, None))


async def redrive(call: Call) -> Response:
    """A part of the queue at a time: see `Redrive`."""
    call.context.check_going()
    body: RedriveBody = await call.body()
    for name in (body.to, body.queue):
        if name is not None:
            check_queue_name(name)
    if body.to is not None:
        call.need(("publish",), body.to)
    wanted = Redrive(
        max=body.max, budget_ms=call.context.settings.redrive_ms, to=body.to, cause=body.cause,
        queue=body.queue, key=body.key, from_at=body.from_at, until_at=body.until_at,
        rate=body.rate, dry_run=body.dry_run, targets=call.identity.queues("publish"),
    )  # fmt: skip
    with call.looking() if body.dry_run else nullcontext():  # what leaves has a limit of its own
        done = await _dispatcher(call).redrive(
            call.tenant, call.queue, wanted, body.after, call.claims
        )
    return call.answer(RedriveAnswer(done.count, done.next))


async def retention(call: Call) -> Response:
    """For the retention job: it drops buckets that it has archived. Safe to repeat."""
    call.context.check_going()
    body: RetentionBody = await call.body()
    dispatcher = _dispatcher(call)
    if not body.drop:
        await dispatcher.expire(call.tenant, call.queue, body.queue_id, call.claims)
        return call.answer(RetentionAnswer([], []))
    done = await dispatcher.drop_buckets(
        call.tenant, call.queue, body.queue_id, body.drop, call.claims
    )
    return call.answer(done)


# Behind the scenes


def _dispatcher(call: Call) -> Dispatcher:
    return call.context.dispatcher


async def _existing(call: Call, name: str) -> QueueRow | None:
    try:
        return await call.context.dispatcher.get(call.tenant, name)
    except NotFound:
        return None


async def _update(call: Call, config: QueueConfig, version: int | None) -> QueueRow:
    return await call.context.dispatcher.update(call.tenant, call.queue, config, version)


def _show(call: Call, row: QueueRow, status: int = 200) -> Response:
    return call.answer(queue_object(row), status, {"etag": f'"{row.version}"'})


def _merged(config: QueueConfig, changes: dict[str, Any]) -> QueueConfig:
    """null brings the default back."""
    given = {name: value for name, value in changes.items() if value is not None}
    defaults = msgspec.structs.asdict(QueueConfig())
    back = {name: defaults[name] for name, value in changes.items() if value is None}
    return msgspec.structs.replace(config, **given, **back)


def _version(call: Call, said: int | None) -> int | None:
    """The version that a change is meant for; None: whichever it is."""
    header = call.header("if-match")
    if header is None or header.strip() == "*":
        return said
    found = _TAG.fullmatch(header.strip())
    if found is None:
        raise BadRequest('If-Match is not an ETag of a queue, such as "3"')
    if said is not None and said != int(found[1]):
        raise BadRequest("If-Match and version say different things")
    return int(found[1])


def _must_be_new(call: Call) -> bool:
    header = call.header("if-none-match")
    if header is not None and header.strip() != "*":
        raise BadRequest("If-None-Match can only be *")
    return header is not None


def _check_name(call: Call, name: str | None) -> None:
    if name is not None and name != call.queue:
        raise BadRequest("name differs from the path: a queue can't be renamed")


def _check_same(row: QueueRow, wanted: dict[str, Any]) -> None:
    """`Conflict` when a queue differs from what somebody said of it."""
    there = msgspec.structs.asdict(row.config)
    differing = [
        f"{name} is {_json(there[name])}, not {_json(value)}"
        for name, value in wanted.items()
        if there[name] != value
    ]
    if differing:
        raise Conflict(
            f"queue {row.name} exists with another configuration: {'; '.join(differing)}"
        )


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _check_target(call: Call, config: QueueConfig, old: QueueConfig | None) -> None:
    target = config.dead_letter
    if target and (old is None or old.dead_letter != target):
        call.need(("manage",), check_queue_name(target))
