"""Settings that hold for every test."""

from hypothesis import settings

# No deadline: the machines that run these tests are shared, and a slow moment is no failure.
settings.register_profile("pushlane", deadline=None, print_blob=True)
settings.load_profile("pushlane")
