"""Budgets for all that is read from outside, so that a damaged or hostile file costs a message, not the machine.

A reader that passes one raises `UserError` with the file and the budget. Files of any size are read as streams; the
budgets bound what is held at once, and what a small file may grow to. None is in seconds, because a slow disk is no
attack: every reader does bounded work for each byte and item, so these bounds also bound its time.
"""

from __future__ import annotations

MIB = 1 << 20

# ---------------------------------------------------------------- text: what is held at once
MAX_LINE_BYTES = 16 * MIB  # a book is 1 to 5 MiB
MAX_DOCUMENT_BYTES = 64 * MIB

# ---------------------------------------------------------------- archives: what a small file may grow to
ROOM = 1024 * MIB  # bytes that any archive may unpack to
MAX_EXPANSION = 100  # and this many times its size: text compresses 3 to 10 times
MAX_MEMBERS = 1_000_000  # headers of an archive; a zip's are all in memory, about 0.7 KB each
MAX_MEMBER_HEADER_BYTES = MIB  # a tar's long name or pax header; paths are at most 4 KiB
MAX_DIRECTORY_BYTES = 256 * MIB  # a zip's list of members, read whole
MAX_XZ_MEMORY = 1024 * MIB  # `xz -9` needs 65 MiB
MAX_INDEX_BYTES = 512 * MIB  # a Debian repository's Packages, unpacked; that of Debian main has 50 MiB
MAX_ANSWER_BYTES = 128 * MIB  # a page of an index or a registry's document, unpacked; those of PyPI have up to 30 MiB
MAX_PATH_BYTES, MAX_NAME_BYTES = 4096, 255  # of Linux: PATH_MAX, NAME_MAX

# ---------------------------------------------------------------- tables
MAX_PAGE_BYTES = 256 * MIB  # of parquet, uncompressed; writers make pages of 1 MiB, larger ones for one long text
MAX_ROW_GROUP_BYTES = 4096 * MIB  # uncompressed, of the columns read; writers make groups of 64 MiB to 1 GiB

# ---------------------------------------------------------------- XML
MAX_XML_DEPTH = 100  # translation memories and localisation files have 10 levels
MAX_XML_NAMES = 10_000  # different names of elements and attributes, which the parser keeps; TMX and XLIFF have 100
MAX_XML_TAG_BYTES = MIB  # a tag or comment, held until it ends

# ---------------------------------------------------------------- models
MAX_JSON_BYTES = 256 * MIB  # the largest tokenizer.json in use is 33 MiB
MAX_JSON_DEPTH = 100  # a tokenizer.json has 6 levels
MAX_GGUF_KEYS = 100_000  # a file has about 40, and as many tensors as its model
MAX_GGUF_ITEMS = 16_000_000  # of an array; a vocabulary has 32,000 to 300,000 entries
MAX_VOCABULARY = 1 << 24  # and any other whole number of a config.json; the largest vocabulary in use has 300,000
MAX_LAYERS = 1_000  # the deepest models in use have 130
MAX_HEADS = 10_000
MAX_WIDTH = 1_000_000
MAX_CONTEXT = 10_000_000  # tokens
# Products of those, each of which may be large where the others are small.
MAX_PARAMETERS = 10**13  # 40 TB; the largest models in use have 2 * 10**12
MAX_ACTIVATIONS = 10**14  # numbers kept for one window: layers x width x context
