"""Transfers: batches to other queues, what becomes of each message, and what is counted."""

import pytest
import trio

from pushlane.wire.errors import NotFound, PushlaneError, QueueFull, TooLarge, Unavailable
from pushlane_dispatcher.callers.publication import Publication
from pushlane_dispatcher.queues.transfers import Transfers
from pushlane_storage.message import Dead, Message
from pushlane_storage.queue import QueueConfig, QueueRow

DEAD = Dead("rejected", "q", "id", 1, None, 0)


class Target:
    """Other queues, which can be full, picky, or gone."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[bytes]]] = []
        self.made: list[tuple[str, QueueConfig]] = []
        self.error: PushlaneError | None = None
        self.deleting = False

    async def publish(self, tenant: str, to: str, messages: list[Message]) -> Publication:
        await trio.lowlevel.checkpoint()
        self.batches.append((f"{tenant}/{to}", [message.body for message in messages]))
        if self.error is not None:
            raise self.error
        publication = Publication(len(messages), 1, lambda _: None)
        bad = [index for index, message in enumerate(messages) if message.body == b"bad"]
        publication.refused(bad, TooLarge("too large"))
        return publication

    async def ensure(self, tenant: str, to: str, config: QueueConfig) -> QueueRow:
        await trio.lowlevel.checkpoint()
        if self.deleting:
            raise NotFound("it is being deleted")
        self.made.append((f"{tenant}/{to}", config))
        return QueueRow(tenant, to, "id", config, 1)


def letters(*bodies: bytes, dead: Dead | None = None) -> list[Message]:
    return [Message(body, 0, dead=dead) for body in bodies]


async def test_each_message_of_a_batch_has_its_answer() -> None:
    target = Target()
    transfers = Transfers(target.publish, target.ensure, 1_000)
    one, bad, two = await transfers.of("t")("to", letters(b"1", b"bad", b"2"))
    assert (one, two) == (None, None)
    assert isinstance(bad, TooLarge)
    assert target.batches == [("t/to", [b"1", b"bad", b"2"])]
    assert target.made == [], "only dead letters make their queue"
    assert transfers.numbers() == {"stored": 2, "postponed": 0, "refused": 1}


@pytest.mark.parametrize("error", [QueueFull("full"), NotFound("gone")])
async def test_an_error_of_the_target_is_an_answer_for_all(error: PushlaneError) -> None:
    target = Target()
    target.error = error
    transfers = Transfers(target.publish, target.ensure, 1_000)
    assert await transfers.of("t")("to", letters(b"1", b"2")) == [error, error]
    full = isinstance(error, QueueFull)
    numbers = {"stored": 0, "postponed": 2 * full, "refused": 2 * (not full)}
    assert transfers.numbers() == numbers


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NotFound("there is no queue to"), "can't go to queue to of t: there is no queue to"),
        (QueueFull("the queue is full"), "can't go to queue to of t now: the queue is full"),
    ],
)
async def test_the_log_says_where_messages_can_t_go_and_why(
    caplog: pytest.LogCaptureFixture, error: PushlaneError, text: str
) -> None:
    target = Target()
    transfers = Transfers(target.publish, target.ensure, 1_000)
    await transfers.of("t")("to", letters(b"1", b"2"))
    assert caplog.messages == [], "nothing is said of those that arrive"
    target.error = error
    await transfers.of("t")("to", letters(b"1", b"2"))
    assert caplog.messages == [f"2 messages {text}"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_dead_letters_make_their_queue() -> None:
    target = Target()
    transfers = Transfers(target.publish, target.ensure, 1_000)
    assert await transfers.of("t")("q.dead", letters(b"1", dead=DEAD)) == [None]
    assert target.made == [("t/q.dead", QueueConfig(dead_letter="", max_message_bytes=1_000))]


async def test_a_dead_letter_queue_that_is_being_deleted_is_made_again_later() -> None:
    target = Target()
    target.deleting = True
    transfers = Transfers(target.publish, target.ensure, 1_000)
    (error,) = await transfers.of("t")("q.dead", letters(b"1", dead=DEAD))
    assert isinstance(error, Unavailable)
