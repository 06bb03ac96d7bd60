"""Commands that look at a running cluster, or change it, over the HTTP of one node.

`sketch_files.py` needs no cluster: it reads and writes files.

status.py        `dovetail status`
route.py         `dovetail route`: where a publication would go, and why
spaces.py        `dovetail spaces`
attributes.py    the sentences of `route` about attributes and matchers
segments.py      the short text of a segment
drain.py         `dovetail drain`: a matcher hands over and leaves
plan_move.py     `dovetail plan --apply`: matchers move to the places of a plan
sketch_files.py  `dovetail sketch`: sketches as files
"""
