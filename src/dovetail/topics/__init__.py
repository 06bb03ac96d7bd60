"""The topic plane: names, the exact index, and the sketches that brokers exchange."""
