"""One agent on one device: core, wire, transport, memory network, zenoh, store, runner."""
