"""What is compiled of the matcher: matches sorted by whose they are. Plain arrays only."""
