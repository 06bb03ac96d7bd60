"""What a running cluster says of itself, for people. Asks one node over HTTP; knows no broker.

status.py        `dovetail status`
route.py         `dovetail route`: where a publication would go, and why
spaces.py        `dovetail spaces`
attributes.py    sentences about attributes and matchers
segments.py      segments of dimensions in few words
drain.py         `dovetail drain`: a matcher hands over and leaves
plan_move.py     `dovetail plan --apply`: matchers move to the places of a plan
sketch_files.py  `dovetail sketch`: sketches as files
"""
