"""lexmill: text in, trustworthy models out."""

__version__ = "0.1.0"
