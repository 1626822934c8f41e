"""Translators of conf/model/ on a parallel corpus: one table.

    python -m benchmarks.translators [PRESET...] --corpus FILE [--set KEY=VALUE ...] [--each KEY=VALUE,...]
        [--folder DIR]

`--corpus` names the params.yaml of another workspace, as `lexmill init translate` writes it; all presets and their
tokenizers read its corpus. Each is trained and evaluated by the ordinary stages in a scratch folder, and what has been
is not repeated, so the same command goes on after an interruption. `--set` changes keys of params.yaml, `models.*.KEY`
that of each model; `--each` takes every preset once with each value of one key below it, as
`shape.attention=additive,dot`.

The table has BLEU and chrF on the test split, each with its interval, the parameters, and the seconds of the train
stage without its start.
"""

from __future__ import annotations

from benchmarks.preset_table import Table

TABLE = Table(
    name="translators",
    presets=(
        "rnn_seq2seq_tiny",
        "conv_seq2seq_tiny",
        "transformer_tiny",
        "transformer_ssru_tiny",
        "decoder_translator_tiny",
    ),
    corpus="parallel",
    items="sentence pairs",
    metrics=(("bleu", "BLEU"), ("chrf", "chrF")),
    further=(
        "+corpus@corpora.tokenised_pairs=tokenised_pairs",
        "+tokenizer@tokenizers.joint_blanks=joint_blanks",
    ),
)

if __name__ == "__main__":
    TABLE.main()
