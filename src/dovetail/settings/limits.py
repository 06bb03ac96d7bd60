"""Bounds and defaults of settings that nothing else uses."""

ARCHIVE_NAME_BYTES_MAX = 200
"""Bytes of a broker's name in file names of the archive. A file name has up to 255 bytes, two
numbers among them."""

SPACE_BOUND_MAX = 1e300
"""The largest absolute bound of a dimension. The distance of two bounds has to be finite."""

MATCHERS_ADD_AFTER_SECONDS = 5.0
"""Matchers have to be busier than MATCHERS_ADD_ABOVE for this long, which is a few load reports."""

MATCHERS_REMOVE_BELOW = 0.3
"""A matcher leaves while the others would be less busy than this without it. It is half of
MATCHERS_ADD_ABOVE, so that a small rise does not bring it back."""

MATCHERS_REMOVE_AFTER_SECONDS = 60.0
"""That has to last for this long. An idle matcher costs little."""

PIPELINE_MATCHERS = 2
"""Default number of matchers of `up --pipeline`, if a space needs them."""
