"""Tests of the billing job."""
