"""What a run file may say, validated before anything starts."""
