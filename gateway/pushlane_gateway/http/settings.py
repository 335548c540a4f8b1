"""The bounds of the HTTP API: how long it waits, how much it keeps, and why.

`pushlane.wire.limits` has what a client may send; these are the server's own. Reaching one is
counted under its name in `pushlane_limits_reached_total`.
"""

import msgspec

from pushlane.wire.limits import MIB


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    polls: int = 1_000
    """Receives that wait at once; one more is `throttled`. Shared: see `[shares]`."""
    peeks: int = 32
    """Peeks and looks at single messages under way at once, until their answers are written; also
    `stats`, `explain`, lists of queues with `stats`, and dry runs of a redrive. One more is
    `throttled`. Shared."""
    answers_bytes: int = 512 * MIB
    """Answers with messages that wait to be written, together; with more a request is `throttled`
    and takes nothing. Shared, but one answer always goes."""
    answer_bytes: int = 4 * MIB
    """An answer with messages ends when it has about this much; the rest comes with the next."""
    grace_ms: int = 300
    """How long a receive waits at least where something is ready: it may have to be read from the
    store, and the lease cache be told (`dispatcher.cache_ms`), before it can come."""
    remembered: int = 100_000
    """Receives of which all is settled, kept for `resume_ms`: repeated acks are `duplicate`."""
    redrive_ms: int = 10_000
    """How long one redrive request goes on before it answers where to go on."""
    pipes: int = 10_000
    """Pipes open at once (sessions over HTTP requests); one more is `unavailable`.
    Shared: one more than a share is turned away with `overload`."""
    pipe_ms: int = 30_000
    """A pipe whose client makes no receive for this long is cut; its session waits for a resume."""
    refused_pipe_ms: int = 5_000
    """How long a pipe is kept whose hello was refused, for its client to hear why."""
    list_stats_ms: int = 1_000
    """How long `GET /v1/queues?stats=true` reads queues that nobody has open: the others come
    without."""
    usage_points: int = 1_500
    """Minutes, hours or days of which `/v1/usage` answers at once."""
    usage_answers: int = 20_000
    """Lines of one answer of `/v1/usage`: for each queue one for each of those."""
    ready_ms: int = 2_000
    """How long the store may take to answer `/readyz`."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: at least 1")
