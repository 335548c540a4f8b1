class CannotStart(Exception):
    """A service can't be started; the message says what is missing, or where its log is."""
