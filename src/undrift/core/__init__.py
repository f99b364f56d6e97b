"""The core: the nouns and verbs of a round, the client loop, the exact sum and the server step."""
