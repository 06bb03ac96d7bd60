"""Clients that keep their part of MQTT through every fault, and record what they do and see."""
