"""The hooks, the views, the kinds of block and the record of slots."""
