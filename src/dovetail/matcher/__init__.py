"""Matchers: brokers ask them whose boxes a publication falls in.

All modules but `matcher_agent.py` are pure: frames and time go in, frames come out.

A matcher only narrows what sketches already say. Whatever it does not know for sure and in time, it
calls unsure, and then the broker in question compares its own boxes. So the crash of a matcher
costs time or needless forwarding, never a match. `tests/matcher/test_plane.py` runs everything
frame by frame in any order and compares each answer with a look at all boxes.

Both sides:

    matcher_messages.py  the frames
    layout.py            a space, and how it is shared among matchers
    segment_tables.py    who the matchers are, from gossip; the tables of segments
    coverage.py          for which values a matcher has every box

The broker's side:

    broker_side.py       all of it put together
    own_boxes.py         a broker's own boxes, numbered, with a version
    feed.py              sends them to matchers
    announcement.py      tells all brokers how far they have come, before SUBACK
    questions.py         asks the cheapest candidate, then the next, or nobody
    question_batch.py    points that are asked about together
    candidate_choice.py  whom to ask, so that each kind of box is answered for once
    load_estimate.py     what each candidate would cost
    publisher_order.py   keeps a publisher's order although answers come out of order
    rehearsal.py         whom a broker would ask and why, for `dovetail route`

The matcher's side:

    matcher_agent.py     a matcher among live nodes (not pure)
    matcher_side.py      all of it put together
    held_boxes.py        boxes of many brokers in one index
    answers.py           queues of questions, and answers
    join.py              into the tables, and out of them
    relocation.py        to the place that a plan assigns
    plan_assignment.py   which matcher gets which place of a plan
    segment_report.py    what a matcher tells people of its segments
    autoscaler.py        how many matchers one machine should run
    kernels/             compiled: matches sorted by broker (grouping.py)
"""
