"""Secure sums: a server adds up what parties send without seeing any single part, exact to the last bit."""
