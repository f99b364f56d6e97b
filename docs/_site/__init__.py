"""What the site adds to the pages: links, the contents, the gallery of methods and the API reference."""
