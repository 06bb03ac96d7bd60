"""Limits of packets, and of the packets decoded in one piece."""

USER_PROPERTIES_MAX = 1_000
"""User properties of a SUBSCRIBE, of an UNSUBSCRIBE, or of a publication in a space. Only there the
broker reads them; it does not count those of other packets."""

RUNS_PER_PIECE = 256
"""Runs that one scan returns. A run is a series of neighbouring plain publications that are passed
on together."""

RUN_PACKETS_MAX = 512
"""Packets of one run. A receiver may need each packet by itself, so a run bounds that work."""

RETAINED_RUN_PACKETS_MAX = 128
"""Packets of one run of retained publications, each of which may have a topic of its own."""

FILTERS_DECODED_PER_PIECE = 512
"""Topic filters of a long SUBSCRIBE or UNSUBSCRIBE that are decoded in one piece."""
