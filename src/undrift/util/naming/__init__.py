"""Names with arguments, references and plug-ins."""
