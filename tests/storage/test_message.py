import msgspec

from pushlane_storage.message import MESSAGE_OVERHEAD, Message, size_of, total_size
from tests.storage.samples import FULL_MESSAGE


def test_an_empty_message_counts_its_overhead() -> None:
    assert size_of(Message(b"", 0)) == MESSAGE_OVERHEAD


def test_body_key_and_headers_count() -> None:
    message = Message(b"12345", 0, key="123", headers={"12": "3", "": "4"})
    assert size_of(message) == MESSAGE_OVERHEAD + 5 + 3 + 4


def test_nothing_else_counts() -> None:
    bare = msgspec.structs.replace(FULL_MESSAGE, key=None, headers=None)
    assert size_of(bare) == MESSAGE_OVERHEAD + 256


def test_many_count_as_each_of_them_does() -> None:
    messages = [
        Message(b"1", 0),
        Message(b"12", 0, key="123"),
        Message(b"", 0, headers={"1": "2"}),
        FULL_MESSAGE,
    ]
    assert total_size(messages) == sum(map(size_of, messages))
    assert total_size([]) == 0
