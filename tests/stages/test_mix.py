"""The stage mix."""

from types import SimpleNamespace

from lexmill import params
from lexmill.base import layout
from lexmill.params.corpora import Mixture
from lexmill.stages import mix
from tests.data.made_shards import write_shards


def test_it_warns_of_what_a_model_would_be_scored_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    chosen = SimpleNamespace(mixtures={"both": Mixture(tokenizer="bpe", members={"plays": 3.0, "poems": 1.0})})
    monkeypatch.setattr(params, "load", lambda: chosen)
    for name, train, held_out in (("plays", [[5, 6], [7]], [8]), ("poems", [[8], [8], [9]], [4])):
        write_shards(layout.tokens(name, "bpe"), {"train": {"text": train}, "valid": {"text": [held_out]}})
    mix.main("both")
    said = capsys.readouterr()
    assert "plays: 75 % of the training" in said.out + said.err
    assert "warning: documents of poems (train) that are in plays (valid or test): 2; a model" in said.out + said.err
    assert "documents of plays" not in said.out + said.err
