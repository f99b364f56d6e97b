"""A Flower app that trains with an algorithm of Undrift."""
