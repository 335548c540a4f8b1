import trio

from pushlane.wire.errors import QueueFull
from pushlane_dispatcher.core.effects import Transfer
from pushlane_dispatcher.transfers import Transfers
from pushlane_storage.message import Message
from tests.dispatcher.rig import blocked


def transfer(to: str, body: bytes) -> Transfer:
    return Transfer(None, to, Message(body, 0), "dedup")  # type: ignore[arg-type]


class Target:
    """Other queues, which can be slow, full, or picky."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[bytes]]] = []
        self.open = trio.Event()
        self.full = False

    async def __call__(self, to: str, messages: list[Message]) -> list[bool]:
        self.batches.append((to, [message.body for message in messages]))
        if to == "slow":
            await self.open.wait()
        if self.full:
            raise QueueFull("full")
        return [message.body != b"bad" for message in messages]


async def test_what_gathers_travels_together_and_targets_do_not_wait_for_each_other() -> None:
    target = Target()
    transfers = Transfers(target)
    answers: list[tuple[bytes, bool]] = []

    def answer(moved: Transfer, stored: bool) -> None:
        answers.append((moved.message.body, stored))

    async with trio.open_nursery() as nursery:

        def add(to: str, body: bytes) -> None:
            if transfers.add(transfer(to, body)):
                nursery.start_soon(transfers.run, to, answer)

        add("slow", b"1")
        await blocked()
        for body in (b"2", b"bad", b"3"):
            add("slow", body)
        add("quick", b"4")
        await blocked()
        assert answers == [(b"4", True)]
        busy = [transfers.busy]
        target.open.set()
    assert [*busy, transfers.busy] == [True, False]
    assert target.batches == [("slow", [b"1"]), ("quick", [b"4"]), ("slow", [b"2", b"bad", b"3"])]
    assert answers[1:] == [(b"1", True), (b"2", True), (b"bad", False), (b"3", True)]


async def test_an_error_of_the_target_is_an_answer_for_all() -> None:
    target = Target()
    target.full = True
    transfers = Transfers(target)
    for body in (b"1", b"2"):
        transfers.add(transfer("quick", body))
    answers: list[bool] = []
    await transfers.run("quick", lambda _, stored: answers.append(stored))
    assert answers == [False, False]
