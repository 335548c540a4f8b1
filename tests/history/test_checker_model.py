"""Histories of a model that keeps every promise pass; the same ones with one named fault do not.

The model is tests/history/model.py. A mutation is only tried where it breaks a promise
for certain, so each must be caught wherever it is tried.
"""

from collections.abc import Callable, Iterator
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane_history.checker import check
from pushlane_history.event import (
    EPOCH_SHIFT,
    Crash,
    Drained,
    Ended,
    Event,
    Grant,
    Leaving,
    Moved,
    Open,
    Publish,
    Published,
    Settle,
    Stored,
    Subscribe,
    Verdict,
    Void,
)
from tests.history.model import WINDOW_MS, Model, as_clients_saw_it

History = list[Event]
Mutation = Callable[[History, Random], tuple[History, set[str]] | None]
SEEDS = st.integers(0, 1 << 32)
MUTATIONS: dict[str, Mutation] = {}


def mutation(function: Mutation) -> Mutation:
    MUTATIONS[function.__name__] = function
    return function


@settings(max_examples=300, deadline=None)
@given(SEEDS, st.integers(1, 300))
def test_what_a_correct_queue_does_is_clean(seed: int, steps: int) -> None:
    report = check(Model(seed).run(steps))
    assert report.ok, str(report)


@settings(max_examples=300, deadline=None)
@given(SEEDS, st.integers(1, 300))
def test_so_is_what_its_clients_see_of_it(seed: int, steps: int) -> None:
    report = check(as_clients_saw_it(Model(seed).run(steps)))
    assert report.ok, str(report)


def test_the_model_does_all_the_rare_things() -> None:
    notes: dict[str, int] = {}
    for seed in range(150):
        for name, count in check(Model(seed).run(200)).notes.items():
            notes[name] = notes.get(name, 0) + count
    expected = "again duplicate duplicate_settle foreign_settle honoured lease_lost "
    expected += "publish_unknown settle_unknown takeover zombie"
    assert set(notes) == set(expected.split())
    assert min(notes.values()) >= 5


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.lists(st.tuples(st.sampled_from(["drop", "double", "swap"]), SEEDS), max_size=5))
def test_no_history_is_too_strange_to_be_judged(seed: int, changes: list[tuple[str, int]]) -> None:
    history = Model(seed).run(100)
    for change, where in changes:
        at = where % (len(history) - 1)
        if change == "drop":
            del history[at]
        elif change == "double":
            history.insert(at, history[at])
        else:
            history[at], history[at + 1] = history[at + 1], history[at]
    for told in (history, as_clients_saw_it(history)):
        assert str(check(told))


def struck(name: str) -> Iterator[tuple[int, History, set[str]]]:
    for seed in range(200):
        mutated = MUTATIONS[name](Model(seed).run(200), Random(seed))
        if mutated is not None:
            yield seed, *mutated


def pick(random: Random, places: list[int]) -> int | None:
    return random.choice(places) if places else None


def places(history: History, *kinds: type[Event]) -> list[int]:
    return [at for at, event in enumerate(history) if isinstance(event, kinds)]


def new_grants(history: History) -> list[tuple[int, Grant]]:
    """Grants but for those sent again, without ack, or by a zombie."""
    epoch, found = 0, []
    for at, event in enumerate(history):
        if isinstance(event, Open):
            epoch = event.epoch
        elif isinstance(event, Grant) and event.fence >> EPOCH_SHIFT == epoch and not event.again:
            found.append((at, event))
    return found


def without(history: History, at: int) -> History:
    return history[:at] + history[at + 1 :]


def replaced(history: History, at: int, **fields: object) -> History:
    event = msgspec.structs.replace(history[at], **fields)
    return [*history[:at], event, *history[at + 1 :]]


@mutation
def a_void_is_not_durable(history: History, random: Random) -> tuple[History, set[str]] | None:
    """One whose message was granted before and after it by the same owner."""
    found = []
    grants = new_grants(history)
    for at in places(history, Void):
        void = history[at]
        assert isinstance(void, Void)
        before = [grant for place, grant in grants if place < at and grant.id == void.id]
        after = [grant for place, grant in grants if place > at and grant.id == void.id]
        if after and before[-1].fence >> EPOCH_SHIFT == after[0].fence >> EPOCH_SHIFT:
            found.append(at)
    at_void = pick(random, found)
    return None if at_void is None else (without(history, at_void), {"two_leases"})


@mutation
def a_message_is_granted_twice(history: History, random: Random) -> tuple[History, set[str]] | None:
    at = pick(random, [at for at, _ in new_grants(history)])
    if at is None:
        return None
    grant = history[at]
    assert isinstance(grant, Grant)
    twin = msgspec.structs.replace(grant, receipt="twin", fence=grant.fence + 1)
    return [*history[: at + 1], twin, *history[at + 1 :]], {"two_leases"}


@mutation
def two_fences_are_swapped(history: History, random: Random) -> tuple[History, set[str]] | None:
    last: dict[str, int] = {}
    pairs = []
    for at, grant in new_grants(history):
        if grant.id in last:
            pairs.append((last[grant.id], at))
        last[grant.id] = at
    if not pairs:
        return None
    one, two = random.choice(pairs)
    first, second = history[one], history[two]
    assert isinstance(first, Grant)
    assert isinstance(second, Grant)
    history = replaced(history, one, fence=second.fence)
    return replaced(history, two, fence=first.fence), {"fence"}


@mutation
def a_body_is_mixed_up(history: History, random: Random) -> tuple[History, set[str]] | None:
    at = pick(random, [at for at, _ in new_grants(history)])
    return None if at is None else (replaced(history, at, uid="nobody"), {"phantom"})


@mutation
def a_stored_message_vanishes(history: History, random: Random) -> tuple[History, set[str]] | None:
    """One that was acknowledged and never granted: nothing can have ended it."""
    granted = {event.id for event in history if isinstance(event, Grant)}
    leaving = {event.id for event in history if isinstance(event, Leaving)}
    acked = {event.id for event in history if isinstance(event, Published)}
    found = [
        (at, index)
        for at in places(history, Stored)
        for index, id in enumerate(history[at].ids)  # type: ignore[attr-defined]
        if id in acked - granted - leaving
    ]
    if not found:
        return None
    at, index = random.choice(found)
    dump = history[at]
    assert isinstance(dump, Stored)
    ids, uids = without_item(dump.ids, index), without_item(dump.uids, index)
    crashed = any(
        isinstance(event, Crash) for event in history[published_at(history, dump, index) :]
    )
    rule = "ack_before_durable" if crashed else "lost"
    return replaced(history, at, ids=ids, uids=uids), {rule}


def without_item(items: list[str], index: int) -> list[str]:
    return items[:index] + items[index + 1 :]


def published_at(history: History, dump: Stored, index: int) -> int:
    """Where the last answer for a message stands."""
    id = dump.ids[index]
    return max(
        at for at, event in enumerate(history) if isinstance(event, Published) and event.id == id
    )


def confirmed_acks(history: History) -> list[tuple[int, Grant]]:
    """Where an ack was answered with ok, and the grant that it settled."""
    grants = {grant.receipt: grant for _, grant in new_grants(history)}
    asked = {e.op: e for e in history if isinstance(e, Settle) and e.kind == "ack"}
    found = []
    for at, event in enumerate(history):
        if isinstance(event, Verdict) and event.result == "ok" and event.op in asked:
            found.append((at, grants[asked[event.op].receipt]))
    return found


@mutation
def an_acked_message_is_granted(
    history: History, random: Random
) -> tuple[History, set[str]] | None:
    acks = confirmed_acks(history)
    if not acks:
        return None
    at, grant = random.choice(acks)
    again = msgspec.structs.replace(grant, receipt="again", fence=1 << 60)
    return [*history[: at + 1], again, *history[at + 1 :]], {"grant_after_ack"}


@mutation
def an_acked_message_is_stored(history: History, random: Random) -> tuple[History, set[str]] | None:
    acks = confirmed_acks(history)
    if not acks:
        return None
    _, grant = random.choice(acks)
    return [*history, Stored(0, grant.queue, [grant.id], [grant.uid])], {"confirmed_settle_lost"}


@mutation
def a_stale_settle_is_taken(history: History, random: Random) -> tuple[History, set[str]] | None:
    found = []
    voided: set[str] = set()
    receipts: dict[str, str] = {}
    stale: set[int] = set()
    for at, event in enumerate(history):
        if isinstance(event, Grant):
            receipts[event.id] = event.receipt
        elif isinstance(event, Void):
            voided.add(receipts.get(event.id, ""))
        elif isinstance(event, Settle) and event.receipt in voided:
            stale.add(event.op)
        elif isinstance(event, Verdict) and event.op in stale:
            found.append(at)
    at_verdict = pick(random, found)
    if at_verdict is None:
        return None
    return replaced(history, at_verdict, result="ok"), {"stale_settle"}


@mutation
def a_repeat_is_stored_again(history: History, random: Random) -> tuple[History, set[str]] | None:
    asked = {event.op: event for event in history if isinstance(event, Publish)}
    since: dict[tuple[str | None, str | None], int] = {}
    for publish in asked.values():
        since.setdefault((publish.key, publish.dedup), publish.at)
    known: set[str] = set()
    found = []
    for at, event in enumerate(history):
        if isinstance(event, Published):
            publish = asked[event.op]
            recent = event.at - since[publish.key, publish.dedup] < WINDOW_MS
            if event.duplicate and event.id in known and publish.dedup is not None and recent:
                found.append(at)
            if not event.duplicate:
                known.add(event.id)
    at_answer = pick(random, found)
    if at_answer is None:
        return None
    return replaced(history, at_answer, id="new", duplicate=False), {"dedup"}


@mutation
def an_attempt_is_invented(history: History, random: Random) -> tuple[History, set[str]] | None:
    found = [at for at, grant in new_grants(history) if not grant.ack_none]
    at = pick(random, found)
    if at is None:
        return None
    grant = history[at]
    assert isinstance(grant, Grant)
    return replaced(history, at, attempt=grant.attempt + 50), {"attempts"}


@mutation
def a_cause_is_made_up(history: History, random: Random) -> tuple[History, set[str]] | None:
    at = pick(random, places(history, Leaving))
    return None if at is None else (replaced(history, at, cause="damaged"), {"dead_cause"})


@mutation
def a_transfer_forgets_to_append(
    history: History, random: Random
) -> tuple[History, set[str]] | None:
    moved = [event.id for event in history if isinstance(event, Moved)]
    done = [event.id for event in history if isinstance(event, Ended) and event.id in moved]
    if not done:
        return None
    id = random.choice(done)
    kept = [event for event in history if not (isinstance(event, Moved) and event.id == id)]
    return kept, {"transfer"}


@mutation
def credit_is_ignored(history: History, random: Random) -> tuple[History, set[str]] | None:
    subs = {event.sub for event in history if isinstance(event, Subscribe)}
    if not any(grant.sub in subs and not grant.ack_none for _, grant in new_grants(history)):
        return None
    none = [
        msgspec.structs.replace(event, credit=0) if hasattr(event, "credit") else event
        for event in history
    ]
    return none, {"credit"}


@mutation
def a_key_is_ignored(history: History, random: Random) -> tuple[History, set[str]] | None:
    """Two messages that were out at once turn out to have one key."""
    asked = {event.uid: event for event in history if isinstance(event, Publish)}
    acked = {event.id for event in history if isinstance(event, Published) and event.seq}
    plain = [uid for uid, publish in asked.items() if publish.key is publish.dedup is None]
    own = {at for at, _ in new_grants(history)}
    out: dict[str, Grant] = {}
    pairs = []
    for at, event in enumerate(history):
        if at in own and isinstance(event, Grant) and event.queue == "q" and event.uid in plain:
            if event.id in acked and not event.ack_none:
                pairs += [(event.uid, other.uid) for other in out.values() if other.id != event.id]
                out[event.id] = event
        elif not isinstance(event, Publish | Published):
            out.clear()  # perhaps this ended one of them
    if not pairs:
        return None
    chosen = random.choice(pairs)
    changed = [
        msgspec.structs.replace(event, key="shared")
        if isinstance(event, Publish) and event.uid in chosen
        else event
        for event in history
    ]
    return changed, {"key_order"}


@mutation
def a_queue_does_not_drain(history: History, random: Random) -> tuple[History, set[str]] | None:
    at = pick(random, places(history, Drained))
    return None if at is None else (without(history, at), {"drain"})


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_named_fault_is_caught_wherever_it_strikes(name: str) -> None:
    strikes = 0
    for seed, history, rules in struck(name):
        strikes += 1
        report = check(history)
        assert rules & set(report.broken), f"seed {seed}: {report.broken} instead of {rules}"
    assert strikes >= 10
