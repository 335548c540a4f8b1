"""What the Cassandra store has done since it was opened, and what it is doing."""

import msgspec


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    requests: int
    in_flight: int
    """Requests under way."""
    waiting: int
    """Requests that wait for room among them."""
    retries: int
    """Requests that were sent again because their outcome was unknown."""
    unknown: int
    """Requests whose outcome stayed unknown."""
    refused: int
    """Requests that Cassandra turned down, or that could not be sent."""
    fence_reads: int
    confirmed: int
    """Writes that those reads confirmed: `confirmed / fence_reads` is the mean size of a group."""
    beats: int
    slots: int
    """Slots that this process owns."""
    slots_lost: int
    """Slots that were another's when the rows were compared with what this process served."""
    fenced: int
    """How often this process was fenced by another one."""
    fencings: int
    """Processes that this one has fenced."""
    damaged: int
    """Damaged segments found."""
