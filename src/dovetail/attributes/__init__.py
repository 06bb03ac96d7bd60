"""The attribute plane: where-clauses and spaces, boxes and points, and who finds what matches."""
