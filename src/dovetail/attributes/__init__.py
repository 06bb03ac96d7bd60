"""The attribute plane: where-clauses, and the spaces that give them a meaning."""
