"""The simulated shell: the real core on a virtual clock and a seeded network. Pure."""
