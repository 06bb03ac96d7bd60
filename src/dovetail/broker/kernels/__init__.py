"""What is compiled of the broker: packets in whole read buffers, whose boxes. Plain arrays only."""
