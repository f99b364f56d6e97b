"""Methods as lines of text, and the cards that describe them."""
