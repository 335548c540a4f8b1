"""What becomes of a message after its handler: the settle to send, made from what users say."""

from __future__ import annotations

from pushlane.wire.errors import BadRequest
from pushlane.wire.limits import Limits

from .settle import Key


def nack(error: object, delay_ms: int | None, limits: Limits) -> Key:
    """It failed: deliver it again, after the queue's backoff or `delay_ms`."""
    if delay_ms is not None and not 0 <= delay_ms <= limits.delay_ms_max:
        raise BadRequest(f"delay_ms is {delay_ms}: 0 to {limits.delay_ms_max}")
    return Key("nack", delay_ms=delay_ms, error=_summary(error, limits))


def reject(error: object, limits: Limits) -> Key:
    """It will never succeed: to the dead letters."""
    return Key("nack", error=_summary(error, limits), dead=True)


def extend(lease_ms: int, limits: Limits) -> Key:
    """Work takes longer."""
    if not limits.lease_ms_min <= lease_ms <= limits.lease_ms_max:
        least, most = limits.lease_ms_min, limits.lease_ms_max
        raise BadRequest(f"lease_ms is {lease_ms}: {least} to {most}")
    return Key("extend", lease_ms=lease_ms)


def _summary(error: object, limits: Limits) -> str | None:
    """A text of at most error_bytes: the exception's type and message, or what was given."""
    if error is None:
        return None
    text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    data = text.encode(errors="replace")[: limits.error_bytes]
    return data.decode(errors="ignore")
