"""The node: one agent on one device. Start with `core`, `device` and `loop`; `assemble` puts a node together."""
