"""Statements, prepared: each text once, and nobody's thread waits for it.

A node that just hangs leaves a request to prepare unanswered like any other. So it is sent like any
other: to a second node after a moment, and the answer comes in the driver's thread. The session's
own `prepare` blocks its caller for as long as a request may take, and all that is behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cassandra.cluster import Session

Done = Callable[[Exception | None], None]


class Preparing:
    def __init__(self, session: Session, seconds: float) -> None:
        """`seconds`: how long it may take."""
        self._session = session
        self._profile = session.cluster.profile_manager.default
        self._seconds = seconds
        self._prepared: dict[str, Any] = {}
        """By text: there are as many as the store has kinds of requests."""
        self._waiting: dict[str, list[Done]] = {}
        self._lock = Lock()

    def find(self, text: str) -> Any | None:
        return self._prepared.get(text)

    def begin(self, text: str, done: Done) -> None:
        """Prepare one that is not there; `done` is called once, perhaps in another thread."""
        with self._lock:
            waiting = self._waiting.setdefault(text, [])
            waiting.append(done)
            if len(waiting) > 1:
                return
        self._ask(text)

    def _ask(self, text: str) -> None:
        from cassandra.cluster import ResponseFuture
        from cassandra.protocol import PrepareMessage

        plan = self._profile.speculative_execution_policy.new_plan(None, None)
        future = ResponseFuture(
            self._session, PrepareMessage(query=text), None, self._seconds,
            speculative_execution_plan=plan,
        )  # fmt: skip
        future.add_callbacks(partial(self._answered, text), partial(self._over, text))
        self._profile.load_balancing_policy.watch(future)
        future.send_request()

    def _answered(self, text: str, answer: Any) -> None:
        from cassandra.query import PreparedStatement

        cluster = self._session.cluster
        try:
            prepared = PreparedStatement.from_message(
                answer.query_id, answer.bind_metadata, answer.pk_indexes, cluster.metadata, text,
                None, cluster.protocol_version, answer.column_metadata, answer.result_metadata_id,
            )  # fmt: skip
            cluster.add_prepared(answer.query_id, prepared)  # a node that doesn't know it asks
            self._prepared[text] = prepared
        except Exception as error:  # else they would wait for ever
            self._over(text, error)
        else:
            self._over(text, None)

    def _over(self, text: str, error: Exception | None) -> None:
        with self._lock:
            waiting = self._waiting.pop(text, [])  # none: another node has answered before
        for done in waiting:
            done(error)
