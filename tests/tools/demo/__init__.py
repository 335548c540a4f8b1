"""Tests of `make demo`: its process. What its page does is tested in sdk_js/test/demo."""
