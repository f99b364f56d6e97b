"""Methods written as text, and the cards that describe them."""
