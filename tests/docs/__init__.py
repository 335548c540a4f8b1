"""The documentation is run: every command, every program, every output that it shows."""
