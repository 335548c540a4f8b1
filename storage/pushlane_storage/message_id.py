"""What the id of a stored message looks like. Users take it for opaque; `ident` reads it back."""


def make_id(queue_id: str, shard: int, lane: int, seq: int) -> str:
    return f"{queue_id}-{shard:x}-{lane:x}-{seq:x}"


def shard_of_id(message_id: str) -> str:
    """What the ids of all messages of its shard begin with."""
    return message_id.rsplit("-", 2)[0]
