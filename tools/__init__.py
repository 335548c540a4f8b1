"""What developers run beside the server and its tests."""
