"""A shard's engine that takes notes of what it delivers and of what is durable."""

from __future__ import annotations

from pushlane_dispatcher.core.effects import Append, Deliver, Lost, Settle, Transfer
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.engine import Engine
from pushlane_dispatcher.ledger import Ledger, Unkept
from pushlane_dispatcher.recording.notes import Notes
from pushlane_dispatcher.tools import Tools
from pushlane_dispatcher.transfers import Errors, Send


class RecordedEngine(Engine):
    def __init__(
        self, shard: Shard, tools: Tools, send: Send, ledger: Ledger | Unkept, notes: Notes
    ) -> None:
        super().__init__(shard, tools, send, ledger)
        self._notes = notes
        deliver, lost = self._do[Deliver], self._do[Lost]

        def deliver_noted(effect: Deliver) -> None:
            notes.granted(effect)
            deliver(effect)

        def lost_noted(effect: Lost) -> None:
            notes.lost(effect)
            lost(effect)

        self._do |= {Deliver: deliver_noted, Lost: lost_noted}

    def _appended(self, append: Append) -> None:
        flights = list(append.lane.flights)
        super()._appended(append)
        for flight in flights:
            if flight not in append.lane.flights:  # it counts: all before it are stored
                self._notes.stored(flight.segment)

    def _settled(self, settle: Settle) -> None:
        self._notes.settled(settle.rows)
        super()._settled(settle)

    def _transferred(self, transfer: Transfer, errors: Errors) -> None:
        self._notes.transferred(transfer, errors)
        super()._transferred(transfer, errors)
