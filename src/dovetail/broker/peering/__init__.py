"""A broker among brokers: what they tell each other, and what they owe each other. Pure."""
