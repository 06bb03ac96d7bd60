"""Limits of matchers: questions, answers, feeds, and the moves of segments."""

BOX_KINDS_MAX = 256
"""Kinds of boxes that a broker announces. Matchers are not asked about a broker with more: it
searches its boxes itself."""

FEED_FRAME_BOXES_MAX = 2_048
"""Boxes in one frame of a feed: half a megabyte at most."""

FEED_FRAMES_MAX = 8
"""Frames of one feed in flight. Changes meanwhile go together into the next frame."""

FEED_NARROW_SECONDS = 10.0
"""A matcher keeps boxes that it no longer answers for this long: until gossip has reached
everybody, some brokers still ask it."""

FEED_WAIT_SECONDS_MAX = 0.05
"""A question waits this long for boxes that are still on their way to the matcher."""

FEED_RANGES_MAX = 64
"""Ranges of one dimension for which a feed is complete: few at any time."""

QUESTION_POINTS_MAX = 1_024
"""Points in one question to a matcher, which answers it in some milliseconds."""

MATCHER_ANSWER_SECONDS_MAX = 0.3
"""A broker waits this long for a matcher's answer. Then it avoids the matcher for a while, and asks
another one."""

ASKING_SECONDS_MAX = 1.5
"""After this time in all, a publication goes to every broker that may want it."""

PASSED_OVER_SECONDS = 5.0
"""A broker avoids a matcher that did not answer for this long. By then gossip knows if it is
dead."""

OPEN_POINTS_MAX = 65_536
"""Publications of one broker that wait for matchers. Further ones go to all brokers that may want
them."""

MATCHER_QUEUE_POINTS_MAX = 65_536
"""Points that wait at a matcher. It answers further questions with "unsure" at once."""

MATCHING_POINTS_MAX = 1_024
"""Points that a matcher matches before it looks at its connections."""

ANSWER_BOXES_MAX = 4_096
"""Box numbers in an answer for one broker and point. If there are more, the broker may as well
search itself."""

ANSWER_NUMBERS_MAX = 1_048_576
"""Box numbers in one answer: four megabytes."""

MATCHER_SLICE_SECONDS = 0.005
"""A matcher matches for this long before it reads its connections."""

MATCHER_JOIN_SECONDS_MAX = 10.0
"""A new matcher waits this long for its boxes, then begins with those it has."""

MATCHER_LEAVE_SECONDS_MAX = 10.0
"""A leaving matcher waits this long for others to get its boxes."""

MATCHER_MOVE_SECONDS_MAX = 60.0
"""A matcher waits this long for the boxes of its planned place, and then as long for the others. It
answers for its old place meanwhile, so there is no hurry."""

MATCHER_LINGER_SECONDS = 3.0
"""A matcher that has left still answers for this long, because gossip takes a moment."""

ORDER_WAITING_MAX = 8_192
"""Publications of one publisher that wait for an earlier one. When there are more, the broker lets
all of them continue without answers."""
