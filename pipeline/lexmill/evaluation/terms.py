"""TF-IDF of words and word pairs: what simple models on a text's words read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lexmill.base.errors import UserError


def tfidf(texts: Sequence[str], least: int) -> Any:
    """Return scikit-learn's vectorizer of the words and word pairs in `least` texts or more, fitted.

    Raises:
        UserError: there is none.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", sublinear_tf=True, min_df=min(least, len(texts))
    )
    try:
        return vectorizer.fit(texts)
    except ValueError as error:
        raise UserError(f"the texts to learn from have no words ({error})") from None
