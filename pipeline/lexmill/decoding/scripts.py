"""Scripts that put no space between words, as ranges inside a character class of `re`."""

# Thai and Lao, Myanmar, Khmer, kana, Han.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
