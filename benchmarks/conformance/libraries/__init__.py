"""The libraries, one module each: `run(method)` trains through the library's own classes and gives a row per model."""
