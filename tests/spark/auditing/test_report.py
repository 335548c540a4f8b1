"""The audit agrees with the checker: on what is clean, and on whatever is broken."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pushlane_history.event import write
from pushlane_history.rule import RULES
from pushlane_spark.auditing.report import audit
from pushlane_spark.errors import HistoryUnfit
from tests.history.model import Model
from tests.history.test_checker import CASES
from tests.history.test_checker_model import MUTATIONS, struck
from tests.spark.auditing.histories import History, agree, mixed, random_history, renamed


def test_each_rule_clean_and_broken(spark: SparkSession) -> None:
    histories = {f"clean {rule}": clean for rule, (clean, _) in CASES.items()}
    histories |= {f"broken {rule}": broken for rule, (_, broken) in CASES.items()}
    reports = agree(spark, histories)
    for rule in CASES:
        assert reports[f"clean {rule}"].ok
        assert set(reports[f"broken {rule}"].broken) == {rule}
    assert CASES.keys() == RULES.keys()


def test_each_fault_that_the_checker_is_tested_with(spark: SparkSession) -> None:
    """Among queues that are well: a fault is found in its own family, and in no other."""
    histories: dict[str, History] = {}
    caught: dict[str, set[str]] = {}
    for number, name in enumerate(MUTATIONS):
        seed, history, rules = next(struck(name))
        others = [renamed(Model(1_000 + number).run(30), 1)]
        histories[name] = mixed(Random(seed), [renamed(history, 0), *others])
        caught[name] = rules
    reports = agree(spark, histories)
    for name, rules in caught.items():
        assert rules & set(reports[name].broken), name


@settings(max_examples=2, phases=[Phase.generate])
@given(st.integers(0, 1 << 32))
def test_random_histories(spark: SparkSession, seed: int) -> None:
    histories = {str(n): random_history(seed + n) for n in range(100)}
    reports = agree(spark, histories)
    broken = sum(not report.ok for report in reports.values())
    assert 10 < broken < 90


def test_files(spark: SparkSession, tmp_path: Path) -> None:
    """A file, and a folder of parts; a last line that was cut off is left out."""
    history = mixed(Random(1), [renamed(Model(n).run(60), n) for n in range(2)])
    whole, parts = tmp_path / "whole, 100%.jsonl", tmp_path / "parts"
    parts.mkdir()
    with whole.open("wb") as file:
        write(file, history)
    for number, start in enumerate(range(0, len(history), 50)):
        with (parts / f"{number:03}.jsonl").open("wb") as file:
            write(file, history[start : start + 50])
    with whole.open("ab") as file:
        file.write(b'{"event":"bound","at":1,"name":"x","value":9,"limit":1}')
    found = audit(spark, str(whole), str(parts))
    expected = agree(spark, {"": history})[""]
    assert found[str(whole)] == found[str(parts)]
    assert found[str(whole)].broken == expected.broken
    assert found[str(whole)].events == expected.events


@pytest.mark.parametrize(
    "line", ["not json", '{"event":"nope","at":1}', '{"event":"grant","at":1}']
)
def test_what_is_no_event(spark: SparkSession, tmp_path: Path, line: str) -> None:
    path = tmp_path / "history"
    path.write_text(f'{{"event":"begin","at":0}}\n{line}\n')
    with pytest.raises(HistoryUnfit, match="history can't be audited: .*" + line[:5]):
        audit(spark, str(path))


def test_another_format(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text('{"event":"begin","at":0,"format":9}\n')
    with pytest.raises(HistoryUnfit, match="format 9, this version reads 1"):
        audit(spark, str(path))


def test_no_history(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(HistoryUnfit, match=r"there is no history in .*nowhere"):
        audit(spark, str(tmp_path / "nowhere"))
    with pytest.raises(HistoryUnfit, match="no history to audit"):
        audit(spark)
    (tmp_path / "empty").touch()
    assert audit(spark, str(tmp_path / "empty"))[str(tmp_path / "empty")].ok
