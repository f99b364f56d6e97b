"""Commands that read runs: status, lens, report, export, verify."""
