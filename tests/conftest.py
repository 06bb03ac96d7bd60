"""Settings for all tests."""

from hypothesis import settings

# A kernel's first call may compile it, and the machine may be shared: no deadlines. A failing
# example prints what replays it.
settings.register_profile("dovetail", deadline=None, print_blob=True)
settings.load_profile("dovetail")
