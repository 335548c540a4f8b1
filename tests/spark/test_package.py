"""What the package offers, with PySpark and without it."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

import pushlane_spark
from pushlane_spark.errors import SparkMissing
from pushlane_spark.queue import read_queue


def test_names_are_loaded_when_they_are_used() -> None:
    assert pushlane_spark.read_queue is read_queue
    assert {name for name in pushlane_spark.__all__ if hasattr(pushlane_spark, name)} == {
        *pushlane_spark.__all__
    }
    assert not hasattr(pushlane_spark, "nope")


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def missing(name: str, *args: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
        return original(name, *args, **more)

    monkeypatch.delitem(sys.modules, "pushlane_spark.queue")
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SparkMissing, match=r"pip install 'pushlane-server\[spark\]'"):
        _ = pushlane_spark.read_queue
