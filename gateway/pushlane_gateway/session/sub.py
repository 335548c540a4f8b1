"""A sub: one subscription of a session, which writes what its feed says as frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pushlane.wire.frames import Ended, LeaseLostFrame
from pushlane.wire.receipts import ReceiptRun, render_all
from pushlane_dispatcher.port import Feed, Run
from pushlane_gateway.session.delivery import deliver_frames

if TYPE_CHECKING:
    from pushlane_gateway.session.session import Session


class Sub:
    feed: Feed
    """There as soon as the session has it."""
    number: int

    def __init__(self, session: Session, queue: str) -> None:
        self.session = session
        self.queue = queue
        self.forgetting = False
        """Somebody will look whether it can be forgotten."""

    def deliver(
        self,
        runs: list[Run],
        place: str,
        prefix: str | None,
        lease_ms: int | None,
        again: bool,
    ) -> None:
        connection = self.session.connection
        if connection is None:  # a resume sends again what was not listed
            return
        context = self.session.context
        most = min(context.settings.deliver_bytes, context.limits.frame_bytes // 2)
        codec = connection.socket.codec
        count = sum([len(run.messages) for run in runs])
        if count >= context.settings.hurry_messages:
            connection.socket.hurry()
        for frame in deliver_frames(codec, self.number, runs, place, prefix, lease_ms, most):
            connection.send_encoded("deliver", frame)
        if again:
            context.metrics.redelivered += count
        else:
            context.metrics.delivered += count
        connection.watch_outbox()

    def lost(self, receipts: list[ReceiptRun]) -> None:
        self.session.send(LeaseLostFrame(self.number, render_all(receipts)))

    def quiet(self) -> None:
        """It waits for what comes."""

    def settled(self) -> None:
        if self.feed.closed:
            self.session.forget_later(self)

    def ended(self, code: str, message: str) -> None:
        self.session.sub_over(self, Ended(self.number, code, message))

    def elsewhere(self) -> None:
        self.session.send_away()
