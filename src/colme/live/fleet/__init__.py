"""The feed of a fleet: what nodes say when they are asked, or report."""
