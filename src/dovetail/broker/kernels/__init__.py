"""What is compiled of the broker: finding packets in whole read buffers. Plain arrays only."""
