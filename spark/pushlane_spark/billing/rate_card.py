"""Rate cards: prices by what is used, from a day on, with other prices for some tenants.

    currency = "EUR"

    [[prices]]
    from = 2026-01-01
    million_published = 0.50

    [prices.tenants.acme]
    million_published = 0.40

A price that is not named is 0. Prices are decimal numbers and stay so: no float comes near them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from pushlane_spark.errors import RateCardUnfit

MICRO = 1_000_000
GIB = 2**30
MONTH_HOURS = 730
"""A twelfth of a year: what a month has, whichever it is."""


class Item(NamedTuple):
    """What is charged for."""

    counter: str
    per: int
    """How much of the counter the price is for."""


ITEMS: Mapping[str, Item] = {
    "million_published": Item("published", 1_000_000),
    "million_delivered": Item("delivered", 1_000_000),
    "gib_in": Item("bytes_in", GIB),
    "gib_out": Item("bytes_out", GIB),
    "thousand_connection_hours": Item("connection_ms", 1_000 * 3_600_000),
    "gib_month_stored": Item("stored_byte_s", GIB * MONTH_HOURS * 3_600),
}
"""By the names of their prices."""
HIGHEST = Decimal(1_000_000_000)
_CURRENCY = re.compile("[A-Z]{3}")


class Prices(NamedTuple):
    valid_from: date
    usual: dict[str, Decimal]
    tenants: dict[str, dict[str, Decimal]]

    def of(self, tenant: str) -> dict[str, Decimal]:
        """By item, for a tenant."""
        return {**self.usual, **self.tenants.get(tenant, {})}


class RateCard(NamedTuple):
    currency: str
    prices: tuple[Prices, ...]
    """In order of time."""

    def on(self, day: date) -> Prices:
        """The prices of a day, in UTC; `RateCardUnfit`."""
        valid = [prices for prices in self.prices if prices.valid_from <= day]
        if not valid:
            first = self.prices[0].valid_from
            raise RateCardUnfit(f"the rate card has no prices for {day}: its first are of {first}")
        return valid[-1]


def read_rate_card(path: str | Path) -> RateCard:
    """`RateCardUnfit`, which names the file and what is wrong in it."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RateCardUnfit(f"the rate card {path} can't be read: {error}") from error
    try:
        return parse_rate_card(text)
    except RateCardUnfit as error:
        raise RateCardUnfit(f"{path}: {error}") from error


def parse_rate_card(text: str) -> RateCard:
    try:
        found = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise RateCardUnfit(f"it is not TOML: {error}") from error
    _known(found, {"currency", "prices"}, "a rate card")
    currency, entries = found.get("currency"), found.get("prices")
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        raise RateCardUnfit(f'currency must be three letters such as "EUR", not {currency!r}')
    if not isinstance(entries, list) or not entries:
        raise RateCardUnfit("it has no prices: give at least one [[prices]]")
    prices = sorted((_prices(entry) for entry in entries), key=lambda entry: entry.valid_from)
    days = [entry.valid_from for entry in prices]
    if len(set(days)) < len(days):
        raise RateCardUnfit("two [[prices]] begin on the same day")
    return RateCard(currency, tuple(prices))


def _prices(entry: Any) -> Prices:
    if not isinstance(entry, dict):
        raise RateCardUnfit("prices must be tables: write [[prices]]")
    day = entry.get("from")
    if isinstance(day, datetime) or not isinstance(day, date):
        raise RateCardUnfit(f"each [[prices]] needs a day such as from = 2026-01-01, not {day!r}")
    named = {name: value for name, value in entry.items() if name not in ("from", "tenants")}
    tenants = entry.get("tenants", {})
    if not isinstance(tenants, dict) or not all(isinstance(own, dict) for own in tenants.values()):
        raise RateCardUnfit("tenants must be tables: write [prices.tenants.NAME]")
    usual = dict.fromkeys(ITEMS, Decimal(0)) | _amounts(named)
    return Prices(day, usual, {name: _amounts(own) for name, own in tenants.items()})


def _amounts(named: dict[str, Any]) -> dict[str, Decimal]:
    _known(named, ITEMS.keys(), "prices")
    return {name: _amount(name, value) for name, value in named.items()}


def _amount(name: str, value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise RateCardUnfit(f"{name} must be a number, not {value!r}")
    amount = Decimal(value)
    if not amount.is_finite() or not 0 <= amount <= HIGHEST:
        raise RateCardUnfit(f"{name} must be from 0 to {HIGHEST}, not {value}")
    return amount


def _known(found: dict[str, Any], names: Any, what: str) -> None:
    for name in found:
        if name not in names:
            raise RateCardUnfit(f"{what} can't have {name!r}: known are {', '.join(sorted(names))}")


def day_of(minute: int) -> date:
    return datetime.fromtimestamp(60 * minute, UTC).date()
