"""The rules that every history must obey, and the report on one."""

from collections.abc import Iterable

import msgspec

from pushlane_history.event import Event

RULES: dict[str, str] = {
    "lost": "what was stored ends as acked, moved, or (where asked for) expired, dropped or "
    "purged, or is still stored at the end",
    "ack_before_durable": "what was acknowledged to its producer survives every crash",
    "ended_twice": "a message ends once",
    "phantom": "what is delivered or stored was published, under that id, with that body, and "
    "not refused",
    "unacked_unknown": "a publish with an unknown outcome stored its message at most once",
    "dedup": "the same dedup id within its window, or the same producer sequence, is one message, "
    "and the repeat is answered with its id",
    "two_leases": "a message is granted again only after its last grant was settled or voided "
    "durably, or its owner was succeeded; a receipt stands for one grant",
    "stale_settle": "only the holder of the newest, unvoided receipt can start, extend or settle",
    "grant_after_ack": "no grant after an ack, nor after a delivery that needs none",
    "grant_after_end": "no grant after a message ended other than by an ack",
    "confirmed_settle_lost": "a confirmed settle stands: the message is not stored, granted, "
    "voided or dead in spite of it",
    "fence": "the fence grows with each grant of a message, across crashes, and is of an epoch "
    "that was opened",
    "key_order": "messages of one key are granted in publish order, each only after all before "
    "it ended or left",
    "attempts": "attempts count starts, and deliveries count connections that broke before the "
    "message was started, never above the truth or their limits, never forgotten without a crash",
    "dead_cause": "a message is dead for a cause that its history bears out",
    "transfer": "a message that leaves is granted no more, is stored in its target once, and "
    "only then ends here",
    "deleted": "a queue that was deleted acknowledges and grants nothing more",
    "in_flight": "a message that is out does not expire and is not dropped, purged or moved",
    "credit": "a subscription never gets a message while it holds as many as its credit",
    "stalled": "where nothing fails, what is ready goes to any consumer that can hold more",
    "bounds": "nothing exceeds its limit",
    "drain": "when faults stop and consumers are well, queues are empty within the deadline",
    "malformed": "the history itself makes sense: every answer has its request",
}

KEPT_VIOLATIONS = 100
"""Violations kept with their evidence; a broken run can have millions, all alike."""


class Violation(msgspec.Struct, frozen=True):
    rule: str
    message: str
    evidence: tuple[Event, ...]

    def __str__(self) -> str:
        lines = [f"{self.rule}: {self.message} ({RULES[self.rule]})"]
        return "\n    ".join(lines + [str(event) for event in self.evidence])


class Report(msgspec.Struct):
    violations: list[Violation] = []
    """The first ones; `broken` counts all."""
    broken: dict[str, int] = {}
    events: dict[str, int] = {}
    """How many of each kind."""
    faults: dict[str, int] = {}
    notes: dict[str, int] = {}
    """How often rare but legal things happened: shows that a run tested what it meant to."""

    @property
    def ok(self) -> bool:
        return not self.broken

    def note(self, name: str) -> None:
        self.notes[name] = self.notes.get(name, 0) + 1

    def violate(self, rule: str, message: str, evidence: Iterable[Event]) -> None:
        assert rule in RULES, rule
        self.broken[rule] = self.broken.get(rule, 0) + 1
        if len(self.violations) < KEPT_VIOLATIONS:
            self.violations.append(Violation(rule, message, tuple(evidence)))

    def __str__(self) -> str:
        total = sum(self.events.values())
        if self.ok:
            return f"{total} events: no violation"
        broken = ", ".join(f"{rule} {count}" for rule, count in sorted(self.broken.items()))
        return "\n".join([f"{total} events: {broken}", *map(str, self.violations)])
