"""The sockets of clients: the live shell around the pure core of the broker.

server.py         connections, the clock, turns of the event loop, and the disk
listeners.py      the addresses where clients connect
tls_transport.py  TLS between a connection and its socket
websocket.py      MQTT in WebSocket frames
"""
