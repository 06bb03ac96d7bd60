"""Limits of several nodes on one machine: restarts, stops and counts."""

MATCHERS_LOOK_SECONDS = 1.0
"""Seconds between two decisions whether a matcher should be added or removed. Matchers report their
load as often."""

RESTART_SECONDS_MIN = 0.5
"""Seconds before the first restart of a broker that ended by itself. The pause doubles each
time."""

RESTART_SECONDS_MAX = 30.0
"""The longest pause before a restart."""

RESTART_STEADY_SECONDS = 30.0
"""After a broker has been up for this long, the pause is the shortest again."""

STOP_SECONDS_MAX = 20.0
"""A broker that is told to stop has this long before it is killed. Killing it loses nothing that
was acknowledged."""

PIPELINE_BROKERS = 2
"""Default number of brokers of `up --pipeline`: a single broker would ask no matchers."""
