"""The papers' experiments: what they draw, what they count, what the papers say came out."""
