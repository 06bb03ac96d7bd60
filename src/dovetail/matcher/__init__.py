"""Matchers: brokers ask them which brokers have boxes that a publication falls in.

All modules but `matcher_agent.py` are pure: frames and time go in, frames come out.

A matcher can only remove brokers from those that sketches name. If it does not know for sure and in
time, it answers "unsure", and the broker that owns the boxes searches them itself. So the crash of
a matcher costs time or needless forwarding, never a match. `tests/matcher/test_plane.py` runs both
sides frame by frame in any order and compares each answer with a search of all boxes.

Both sides:

    matcher_messages.py  the frames
    layout.py            a space, and how matchers share it
    segment_tables.py    the directory of matchers, from gossip, and their segments
    coverage.py          the values for which a matcher has every box

The broker's side:

    broker_side.py       the whole broker's side, assembled
    own_boxes.py         a broker's own boxes, numbered, with a version
    feed.py              sends the boxes to matchers
    announcement.py      announces their version to all brokers, before SUBACK
    questions.py         asks the cheapest candidate, then the next, then the brokers
    question_batch.py    points that are asked about together
    candidate_choice.py  chooses candidates so that each kind of box is searched once
    load_estimate.py     estimates what each candidate would cost
    publisher_order.py   keeps each publisher's order although answers come out of order
    rehearsal.py         which matchers a broker would ask and why, for `dovetail route`

The matcher's side:

    matcher_agent.py     a matcher in a live cluster (not pure)
    matcher_side.py      the whole matcher's side, assembled
    held_boxes.py        boxes of many brokers in one index
    answers.py           queues of questions, and their answers
    lifecycle.py         joins and leaves the segment tables
    relocation.py        moves to the segments that a plan assigns
    plan_assignment.py   assigns the places of a plan to matchers
    segment_report.py    reports a matcher's segments over HTTP
    autoscaler.py        decides how many matchers one machine runs
    kernels/             compiled: matches sorted by broker (grouping.py)
"""
