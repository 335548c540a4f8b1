"""A tiny model of a shard: each message and its state, told by what is durable.

`ModelRig` is a rig that tells the model of everything that lands in the store or leaves for a
consumer, and checks each against the promises.
"""

from __future__ import annotations

from typing import Any

from pushlane_dispatcher.core.effects import Append, Deliver, Effect, Settle, Transfer
from pushlane_storage.settlement import Settlement
from tests.dispatcher.core.consumer import Got, got
from tests.dispatcher.core.harness import Rig

Place = tuple[int, int]
"""Lane and seq."""


class Known:
    """One published message."""

    def __init__(self, uid: str, key: str | None) -> None:
        self.uid = uid
        self.key = key
        self.state = "pending"
        """pending, then failed or live, then perhaps leaving, then ended."""
        self.fence = 0
        """Of its newest grant."""
        self.voided = 0
        """The newest grant that a durable void ended."""
        self.starts = 0
        """How often a consumer may have started it."""
        self.ack_sent = False
        self.moved = False
        """Another queue has it."""


class Model:
    def __init__(self) -> None:
        self.messages: dict[str, Known] = {}
        self.places: dict[Place, Known] = {}
        self.takers = False
        """Somebody consumes without acks, so that messages end unasked."""

    def count(self, *states: str) -> int:
        return sum(known.state in states for known in self.messages.values())

    def stored(self, lane: int, upto: int) -> None:
        """Everything of a lane below this seq counts as stored."""
        for (number, seq), known in self.places.items():
            if number == lane and seq < upto and known.state == "pending":
                known.state = "live"

    def settle(self, row: Settlement) -> None:
        """A row of the settlement log is durable."""
        lane = row.bucket.lane
        for void in row.voids:
            known = self.places[lane, void.seq]
            known.voided = max(known.voided, void.fence)
        for leaving in row.leaving:
            self._move(lane, leaving.seq, "leaving")
        for low, high in row.acked:
            for seq in range(low, high + 1):
                assert self.places[lane, seq].ack_sent or self.takers
                self._move(lane, seq, "ended")
        for gone in row.gone:
            for seq in range(gone.low, gone.high + 1):
                if gone.cause.startswith("dead:"):
                    assert self.places[lane, seq].moved, "a message was lost on its way"
                self._move(lane, seq, "ended")
        for purge in row.purges:
            for (number, seq), known in self.places.items():
                if number == purge.lane and seq <= purge.upto and seq not in purge.spared:
                    known.state = "ended" if known.state == "live" else known.state

    def _move(self, lane: int, seq: int, state: str) -> None:
        known = self.places[lane, seq]
        assert known.state in ("live", "leaving"), f"{known.uid} is {known.state}"
        known.state = state


class ModelRig(Rig):
    """Every effect waits until it is finished; the model hears of all of them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.model = Model()
        self.landed: set[Effect] = set()
        super().__init__(*args, **options)

    def land(self, effect: Effect) -> Any:
        answer = super().land(effect)
        self.landed.add(effect)
        if isinstance(effect, Transfer):
            for message, error in zip(effect.messages, answer, strict=True):
                if error is None:
                    self.model.messages[message.body.decode()].moved = True
        return answer

    def answer(self, effect: Effect, answer: Any) -> None:
        if isinstance(effect, Settle):
            self._settled(effect)
        super().answer(effect, answer)
        if isinstance(effect, Append):
            self.model.stored(effect.lane.number, effect.lane.stored)

    def _settled(self, settle: Settle) -> None:
        for row in settle.rows:
            self.model.settle(row)

    def decide(self) -> None:
        """The owner is gone: what landed happened, what did not never will."""
        lanes = {effect.lane for effect in self.waiting if isinstance(effect, Append)}
        for lane in lanes:
            for append in lane.flights:
                if append not in self.landed:
                    break
                self.model.stored(lane.number, append.segment.last + 1)
        for effect in self.waiting:
            if isinstance(effect, Settle) and effect in self.landed:
                self._settled(effect)
        for known in self.model.messages.values():
            if known.state == "pending":
                known.state = "failed"

    def _delivered(self, deliver: Deliver) -> None:
        for each in got(deliver):
            known = self.model.places[each.lane, each.seq]
            assert known.uid == each.body
            if deliver.subscription.ack_none:
                assert known.state == "ended", "settled before it leaves"
            elif not deliver.again:
                self._granted(known, each)
        super()._delivered(deliver)

    def _granted(self, known: Known, each: Got) -> None:
        assert known.state == "live", f"{known.uid} is granted and {known.state}"
        assert each.fence > known.fence, "fences grow"
        if known.fence >> 20 == self.epoch:
            assert known.voided >= known.fence, "granted again before its void was durable"
        assert each.attempt <= known.starts + 1, "an attempt that nobody started"
        known.fence = each.fence
        known.starts += each.started
        if known.key is not None:
            for (_, seq), other in self.model.places.items():
                if other.key == known.key and seq < each.seq:
                    assert other.state in ("ended", "leaving", "failed"), "out of order"
