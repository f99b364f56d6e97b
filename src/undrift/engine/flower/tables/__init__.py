"""Tables whose rows lie at the nodes, prepared alike at all of them."""
