"""The matcher plane: who finds the boxes that a publication falls in, and how brokers come to know.

Pure state machines: frames and time go in, frames come out.
"""
