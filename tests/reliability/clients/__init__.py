"""Clients that obey MQTT through every fault, and record what they do and see."""
