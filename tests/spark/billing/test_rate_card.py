"""Rate cards: what they say, and what is wrong with those that can't be used."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from pushlane_spark.billing.rate_card import ITEMS, parse_rate_card, read_rate_card
from pushlane_spark.errors import RateCardUnfit

CARD = """
currency = "EUR"

[[prices]]
from = 2026-06-09
million_published = 2

[[prices]]
from = 2026-01-01
million_published = 0.1
gib_out = 0.07

[prices.tenants.ann]
gib_out = 0.05
"""


def test_prices_of_days_and_tenants() -> None:
    card = parse_rate_card(CARD)
    assert card.currency == "EUR"
    old, new = card.on(date(2026, 6, 8)), card.on(date(2026, 6, 9))
    assert old.of("bob") == {
        **dict.fromkeys(ITEMS, Decimal(0)),
        "million_published": Decimal("0.1"),
        "gib_out": Decimal("0.07"),
    }
    assert old.of("ann")["gib_out"] == Decimal("0.05")
    assert old.of("ann")["million_published"] == Decimal("0.1")
    assert new.of("ann")["gib_out"] == 0
    with pytest.raises(RateCardUnfit, match="no prices for 2025-12-31: its first are of 2026-01"):
        card.on(date(2025, 12, 31))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("currency = ", "it is not TOML"),
        ("", "currency must be three letters"),
        ('currency = "euro"', "currency must be three letters"),
        ('currency = "EUR"', "it has no prices"),
        ('currency = "EUR"\nprices = 3', "it has no prices"),
        ('currency = "EUR"\nprices = [3]', "prices must be tables"),
        ('currency = "EUR"\nvat = 3', "a rate card can't have 'vat'"),
        ('currency = "EUR"\n[[prices]]', "needs a day such as from = 2026-01-01"),
        (
            'currency = "EUR"\n[[prices]]\nfrom = 2026-01-01T00:00:00Z',
            "needs a day such as from = 2026-01-01",
        ),
        (CARD + "gib = 3", "prices can't have 'gib': known are gib_in, gib_month_stored"),
        (CARD + "gib_in = -0.1", "gib_in must be from 0 to"),
        (CARD + "gib_in = 10e9", "gib_in must be from 0 to"),
        (CARD + "gib_in = nan", "gib_in must be from 0 to"),
        (CARD + 'gib_in = "1"', "gib_in must be a number"),
        (CARD + "gib_in = true", "gib_in must be a number"),
        (CARD + "[[prices]]\nfrom = 2026-06-09", "two .* begin on the same day"),
        (CARD + "[[prices]]\nfrom = 2027-01-01\ntenants = 1", "tenants must be tables"),
    ],
)
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    with pytest.raises(RateCardUnfit, match=reason):
        parse_rate_card(text)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "rates.toml"
    with pytest.raises(RateCardUnfit, match=r"rates\.toml can't be read: .*No such file"):
        read_rate_card(path)
    path.write_text("currency = 1")
    with pytest.raises(RateCardUnfit, match=r"rates\.toml: currency must be"):
        read_rate_card(path)
    path.write_text(CARD)
    assert read_rate_card(path) == parse_rate_card(CARD)
