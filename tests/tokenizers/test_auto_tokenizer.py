"""The saved folder in the hands of `transformers`: the same ids, the same text."""

import pytest

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.tokenizers import load
from tests.tokenizers.made_tokenizers import KINDS, TEXTS, saved

PROBES = [*TEXTS[:5], "", " ", "</s> typed <pad>", "x  y\n\n z ", "東京 \u2028 #"]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "blanks"])
def test_auto_tokenizer_gives_the_same_ids_and_text(kind, lowercase, tmp_path):
    from transformers import AutoTokenizer

    folder = saved(kind, tmp_path / "t", lowercase)
    ours, theirs = load(folder), AutoTokenizer.from_pretrained(folder)
    for text in PROBES:
        ids = ours.encode(text)
        assert theirs(text)["input_ids"] == ids
        assert theirs.decode(ids) == ours.decode(ids, skip_special=False)
    assert len(theirs) == ours.vocab_size
    assert set(theirs.all_special_ids) == {0, 1, 2, 3, 4}
    assert (theirs.pad_token_id, theirs.unk_token_id, theirs.bos_token_id) == (0, 1, 2)
    assert (theirs.eos_token_id, theirs.mask_token_id) == (3, 4)
    assert theirs(["the mill", "the"], padding=True)["attention_mask"][1][-1] == 0


@pytest.mark.parametrize("kind", [*KINDS, "blanks"])
def test_loading_gives_back_what_was_saved(kind, tmp_path):
    folder = saved(kind, tmp_path / "t")
    tokenizer = load(folder)
    assert tokenizer.fingerprint == storage.sha256_file(folder / "tokenizer.json")
    assert "</s>" not in [tokenizer.backend.id_to_token(i) for i in tokenizer.encode("a </s> b")]
    assert sorted(path.name for path in folder.iterdir()) == [
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_what_is_no_tokenizer_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match=r"tokenizer\.json: there is no tokenizer here"):
        load(tmp_path)
    path = tmp_path / "tokenizer.json"
    for data in (b"", b"{}", b"\xff\xfe", b"[1, 2]"):
        path.write_bytes(data)
        with pytest.raises(UserError, match=r"tokenizer\.json: not a tokenizer file"):
            load(tmp_path)


def test_a_tokenizer_with_other_special_tokens_is_refused(tmp_path):
    import tokenizers

    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a")).save(
        str(tmp_path / "tokenizer.json")
    )
    with pytest.raises(UserError, match="its first tokens are"):
        load(tmp_path)
