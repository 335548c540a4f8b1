"""A link: one connection between two nodes, after its handshake, that carries frames.

Made for little CPU per frame. `send` only appends; whatever gathers while trio runs one round of
tasks leaves in one write. A read takes whatever is there and hands over all frames that it
completes, by plain calls: no task switch and no channel for a frame.

A link never holds its peer up: it always reads. So who sends much asks first (`waiting`, `room`),
and a peer that takes too little is given up at `outbox_bytes`.

Closing in good order takes both sides: each says its last word (see framing) behind all that it
had to send. A stream that ends without one was cut, and anything may be missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import trio

from pushlane_dispatcher.cluster.counters import LinkCounters, count
from pushlane_dispatcher.cluster.links.framing import BEAT, END, HEADER_BYTES, FrameReader
from pushlane_dispatcher.cluster.links.greeting import Agreement, Greeting
from pushlane_dispatcher.cluster.settings import DEFAULT_SETTINGS, ClusterSettings

Take = Callable[[bytes], None]


class EndCode(Enum):
    CLOSED = "closed"
    """This node closed it."""
    LEFT = "left"
    """The peer closed it, and said so."""
    CUT = "cut"
    """It ended without a word: the peer's process died, or the network cut it."""
    SILENT = "silent"
    """Nothing came for `silence_ms`: the peer hangs, or the network swallows what it sends."""
    OVERRUN = "overrun"
    """The peer took too little: more than `outbox_bytes` waited for it."""
    FRAME_TOO_LONG = "frame_too_long"
    """The peer sent a frame of more than `frame_bytes`."""
    ABORTED = "aborted"
    """This node ended it at once, or cancelled the task that ran it."""
    FAILED = "failed"
    """Whoever took the frames raised an error."""


class LinkEnd(NamedTuple):
    code: EndCode
    text: str

    def __str__(self) -> str:
        return f"{self.code.value}: {self.text}" if self.text else self.code.value


class Link:
    """Somebody has to `run` it, once, also when it was closed before; all else are plain calls."""

    __slots__ = (
        "_counters",
        "_flushed",
        "_full",
        "_moved",
        "_outbox",
        "_received_at",
        "_scope",
        "_sent_at",
        "_settings",
        "_sleeper",
        "_soon",
        "_stream",
        "agreement",
        "ended",
        "open",
        "waiting",
        "why",
    )

    def __init__(
        self,
        stream: trio.abc.Stream,
        agreement: Agreement,
        settings: ClusterSettings = DEFAULT_SETTINGS,
        counters: LinkCounters | None = None,
    ) -> None:
        self._stream = stream
        self._settings = settings
        self._counters = counters or LinkCounters()
        self._outbox = bytearray()
        self._full: deque[bytearray] = deque()
        self._sleeper: trio.lowlevel.Task | None = None
        self._soon: list[Callable[[], None]] = []
        self._moved: trio.Event | None = None
        self._flushed = trio.Event()
        self._scope = trio.CancelScope()
        self._sent_at = self._received_at = trio.current_time()
        self.agreement = agreement
        """What the handshake found."""
        self.open = True
        """Whether `send` has an effect."""
        self.ended = False
        """It is over: nothing is written and no frame handed over any more."""
        self.why: LinkEnd | None = None
        """Why it ended, or is about to; None while it is open."""
        self.waiting = 0
        """Bytes that wait to be written."""

    @property
    def peer(self) -> Greeting:
        """Who is at the other end."""
        return self.agreement.peer

    @property
    def lane(self) -> str:
        """What it is for: `data` or `rest`."""
        return self.agreement.lane

    @property
    def frame_bytes(self) -> int:
        """The longest frame that may be sent."""
        return self.agreement.frame_bytes

    def send(self, frame: bytes) -> None:
        """Have it written, with all else of this round; nothing happens when it is not open."""
        if not self.open:
            return
        size = len(frame)
        assert 0 < size <= self.agreement.frame_bytes, f"a frame of {size} bytes"
        if self.waiting + size > self._settings.outbox_bytes:
            self._fall(EndCode.OVERRUN, f"{self.waiting} bytes waited for {self.peer.name}")
            return
        self._counters.frames_out += 1
        self.waiting += size + HEADER_BYTES
        outbox = self._outbox
        outbox += size.to_bytes(HEADER_BYTES, "big")
        outbox += frame
        if len(outbox) >= self._settings.write_bytes:
            self._full.append(outbox)
            self._outbox = bytearray()
        if self._sleeper is not None:
            self._wake()

    def soon(self, call: Callable[[], None]) -> None:
        """Have this called before the next write, with all else of this round: it may send what
        has gathered by then. Never called when it is not open."""
        if self.open:
            self._soon.append(call)
            self._wake()

    async def room(self, below: int) -> None:
        """Wait until fewer bytes than this wait, or nothing can be sent any more.

        Returns at once, without a checkpoint, where that is so already.
        """
        while self.open and self.waiting >= below:
            if self._moved is None:
                self._moved = trio.Event()
            await self._moved.wait()

    def close(self, reason: str) -> None:
        """Send nothing more; what waits is still written, and what the peer still has is taken.

        Takes at most `close_ms`. The reason is for this side's log.
        """
        if self.open:
            self._shut(EndCode.CLOSED, reason)

    def abort(self, reason: str = "") -> None:
        """End it at once; what waits is lost."""
        self._fall(EndCode.ABORTED, reason)

    async def run(self, take: Take) -> None:
        """Read and write until it is over; `take` gets each frame, in order, by a plain call.

        Returns when it is over, whatever the network did; `why` says more. An error that `take`
        raises ends the link and comes out of here. The stream is closed in any case.
        """
        bug: Exception | None = None
        self._counters.opened += 1
        self._counters.open += 1
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    nursery.start_soon(self._watch)
                    try:
                        await self._read(take)
                    except Exception as error:
                        bug = error
                        self._fall(EndCode.FAILED, type(error).__name__)
                    await self._flushed.wait()
                    nursery.cancel_scope.cancel()
        finally:
            self._end()
            self._count_end()
            await trio.aclose_forcefully(self._stream)
        if bug is not None:
            raise bug

    # Reading

    async def _read(self, take: Take) -> None:
        """Until the peer has said its last word, or the link ended."""
        reader = FrameReader(self._settings.frame_bytes)
        data: bytes | bytearray = self.agreement.early
        while True:
            if data:
                self._received_at = trio.current_time()
                self._counters.bytes_in += len(data)
                frames = reader.feed(data)
                self._counters.frames_in += len(frames)
                await self._hand_over(frames, take)
            if reader.over:
                break
            try:
                data = await self._stream.receive_some(self._settings.read_bytes)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                self._fall(EndCode.CUT, f"{self.peer.name} went away without a word")
                return
        if reader.too_long:
            self._fall(EndCode.FRAME_TOO_LONG, f"{reader.too_long} bytes")
        elif self.open:
            self._shut(EndCode.LEFT, f"{self.peer.name} closed it")

    async def _hand_over(self, frames: list[bytes], take: Take) -> None:
        turn = self._settings.turn_frames
        for number, frame in enumerate(frames, 1):
            if self.ended:
                return
            take(frame)
            if number % turn == 0:
                await trio.lowlevel.checkpoint()

    # Writing

    async def _write(self) -> None:
        """Until the last word has gone."""
        while self.open or self.waiting:
            if self._soon:
                self._gather()
            if not self.waiting:
                await self._sleep()
                continue
            if self._full:
                piece = self._full.popleft()
            else:
                piece, self._outbox = self._outbox, bytearray()
            try:
                await self._stream.send_all(piece)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._fall(EndCode.CUT, f"{self.peer.name} went away without a word")
                return
            if self.ended:
                return
            self._sent_at = trio.current_time()
            self._counters.bytes_out += len(piece)
            self.waiting -= len(piece)
            self._tell_moved()
        self._flushed.set()

    def _gather(self) -> None:
        calls, self._soon = self._soon, []
        for call in calls:
            call()

    async def _sleep(self) -> None:
        def abandon(_: object) -> trio.lowlevel.Abort:
            self._sleeper = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._sleeper = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abandon)

    def _wake(self) -> None:
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None

    def _say(self, word: bytes) -> None:
        self._outbox += word
        self.waiting += len(word)
        self._wake()

    def _tell_moved(self) -> None:
        if self._moved is not None:
            self._moved.set()
            self._moved = None

    # Time

    async def _watch(self) -> None:
        """Send beats, and miss the peer's."""
        beat, silence = self._settings.beat_ms / 1000, self._settings.silence_ms / 1000
        while True:
            await trio.sleep_until(min(self._sent_at + beat, self._received_at + silence))
            now = trio.current_time()
            if now >= self._received_at + silence:
                # After a pause of this whole process, what came meanwhile is read now.
                await trio.lowlevel.checkpoint()
                if now >= self._received_at + silence:
                    self._fall(EndCode.SILENT, f"nothing came for {silence:g} s")
                    return
            if now >= self._sent_at + beat:
                if self.open and not self.waiting:
                    self._say(BEAT)
                self._sent_at = now  # it may wait long until it goes

    # The end

    def _shut(self, code: EndCode, text: str) -> None:
        """Take nothing more to send, and say the last word behind what waits."""
        self._gather()
        if not self.open:
            return
        self.why = LinkEnd(code, text)
        self.open = False
        self._say(END)
        self._scope.deadline = trio.current_time() + self._settings.close_ms / 1000
        self._tell_moved()

    def _count_end(self) -> None:
        assert self.why is not None
        self._counters.open -= 1
        count(self._counters.ends, self.why.code.value)

    def _fall(self, code: EndCode, text: str) -> None:
        if self.why is None:
            self.why = LinkEnd(code, text)
        self._end()
        self._scope.cancel()

    def _end(self) -> None:
        if self.ended:
            return
        if self.why is None:
            self.why = LinkEnd(EndCode.ABORTED, "its task was cancelled")
        self.open = False
        self.ended = True
        self._outbox = bytearray()
        self._full.clear()
        self._soon.clear()
        self.waiting = 0
        self._tell_moved()
