"""Numbers as people read them: three digits and a unit."""

from __future__ import annotations

_COUNTS = ("", " k", " M", " G", " T", " P")
_BYTES = (" B", " KiB", " MiB", " GiB", " TiB", " PiB")
_TIMES = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


def count(value: float) -> str:
    return _scaled(value, 1_000, _COUNTS)


def size(value: float) -> str:
    return _scaled(value, 1_024, _BYTES)


def percent(share: float) -> str:
    return f"{_digits(100 * share)} %"


def duration(ms: float) -> str:
    """Of milliseconds: 12 ms, 1.5 s, 3 h."""
    unit, name = next(((unit, name) for unit, name in _TIMES if ms >= unit), _TIMES[-1])
    return f"{_digits(ms / unit)} {name}"


def count_unit(highest: float) -> float:
    return _unit(highest, 1_000, _COUNTS)


def size_unit(highest: float) -> float:
    return _unit(highest, 1_024, _BYTES)


def duration_unit(highest: float) -> float:
    return next((unit for unit, _ in _TIMES if highest >= 2 * unit), 1)


def _unit(highest: float, step: int, units: tuple[str, ...]) -> float:
    """The unit in which ticks up to this are round numbers."""
    powers = range(len(units))
    return float(step ** max((power for power in powers if highest >= 2 * step**power), default=0))


def _scaled(value: float, step: int, units: tuple[str, ...]) -> str:
    power = 0
    # What would be rounded up to a whole step is written in the next unit.
    while abs(value) >= step * 0.9995 and power < len(units) - 1:
        value, power = value / step, power + 1
    return _digits(value) + units[power]


def _digits(value: float) -> str:
    if value == 0 or abs(value) >= 99.95:
        return f"{value:,.0f}"
    text = f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"
    return "<0.01" if text == "0.00" else text.rstrip("0").rstrip(".")
