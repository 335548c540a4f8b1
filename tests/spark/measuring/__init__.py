"""Tests of the metrics job."""
