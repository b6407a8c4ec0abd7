"""Official and other clients of network protocols, unmodified, against a listener: the whole of each; `make test-clients`."""
