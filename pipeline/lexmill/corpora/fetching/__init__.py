"""From where text lies to a source folder: packages, hub data sets, addresses, files."""
