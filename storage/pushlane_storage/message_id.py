"""What the id of a stored message looks like. Users take it for opaque; `ident` reads it back."""


def make_id(queue_id: str, shard: int, lane: int, seq: int) -> str:
    return f"{queue_id}-{shard:x}-{lane:x}-{seq:x}"
