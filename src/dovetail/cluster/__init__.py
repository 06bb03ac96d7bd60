"""How nodes find each other, and know what the others have: pure, but for the transport."""
