"""Limits of the commands that wait for a cluster."""

DRAIN_SECONDS_MAX = 30.0
"""`dovetail drain` waits this long for a matcher to leave before it reports a failure. It is longer
than MATCHER_LEAVE_SECONDS_MAX, MATCHER_LINGER_SECONDS and the spread of gossip."""

PLAN_SECONDS_MAX = 150.0
"""`dovetail plan --apply` waits this long for matchers to reach their planned places. It is longer
than twice MATCHER_MOVE_SECONDS_MAX and the spread of gossip."""
