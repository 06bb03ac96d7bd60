"""Dovetail: publish/subscribe that joins MQTT topics and attribute ranges."""

__version__ = "0.1.0"
