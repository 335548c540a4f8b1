"""Several plain writes that answer as one: stage by stage, those of a stage at once.

Refused is refused only when nothing of the last stage that was begun can have landed. What the
stages before it wrote (the row of a bucket, the name of a lane) says nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from pushlane_storage.cassandra.ring import Delete, Ring, Write
from pushlane_storage.interface import Outcome, StoreError, StoreRefused, StoreUnknown

Stage = Sequence[Write | Delete]


def write_stages(ring: Ring, stages: Sequence[Stage], done: Outcome) -> None:
    """Begin; `done` is called when the last stage is durable, or a stage failed."""
    todo = iter([stage for stage in stages if stage])

    def go_on() -> None:
        stage = next(todo, None)
        if stage is None:
            done(None)
            return
        answers: list[Exception | None] = []

        def answered(error: Exception | None) -> None:
            answers.append(error)
            if len(answers) == len(stage):
                fault = _sum_up(answers)
                if fault is None:
                    go_on()
                else:
                    done(fault)

        for write in stage:
            ring.write_soon(write, answered)

    go_on()


def _sum_up(answers: Sequence[Exception | None]) -> Exception | None:
    faults = [error for error in answers if error is not None]
    if not faults:
        return None
    for fault in faults:
        if not isinstance(fault, StoreError):
            return fault
    if len(faults) == len(answers) and all(isinstance(fault, StoreRefused) for fault in faults):
        return faults[0]
    unknown = [fault for fault in faults if isinstance(fault, StoreUnknown)]
    return unknown[0] if unknown else StoreUnknown(f"stored in part: {faults[0]}")


async def outcome_of(begin: Callable[[Outcome], None]) -> None:
    """Wait for what calls back. Who is cancelled meanwhile leaves it to itself."""
    await trio.lowlevel.checkpoint_if_cancelled()
    told = trio.Event()
    answers: list[Exception | None] = []

    def done(error: Exception | None) -> None:
        answers.append(error)
        told.set()

    begin(done)
    await told.wait()
    if answers[0] is not None:
        raise answers[0]
