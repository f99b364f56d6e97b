"""The settings of run files, validated before anything starts."""
