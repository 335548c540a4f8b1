"""Attacks on a real server process, in a short form: each stays within its figure."""
