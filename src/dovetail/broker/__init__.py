"""The front end of a node: MQTT, sessions, and the way from a PUBLISH to its subscribers."""
