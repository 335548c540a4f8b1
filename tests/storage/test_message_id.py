"""Message ids."""

from pushlane_dispatcher.core.ident import parse_id
from pushlane_storage.message_id import make_id


def test_an_id_names_its_place() -> None:
    message_id = make_id("q-1", 17, 9, 1 << 40 | 255)
    assert message_id == "q-1-11-9-100000000ff"
    assert parse_id(message_id) == ("q-1", 17, 9, 1 << 40 | 255)
