"""Every tagger of conf/model/ on a corpus of tagged sentences: one table.

    python -m benchmarks.taggers [PRESET...] --corpus FILE [--set KEY=VALUE ...] [--folder DIR]

`--corpus` names the params.yaml of another workspace, as `lexmill init tag` writes it. All presets and their tokenizers
read its corpus; where its tags mark no entities (`reader.scheme: none`), none learns B I E S. Each preset is trained
and evaluated by the ordinary stages in a scratch folder, and what has been is not repeated, so the same command goes on
after an interruption. `--set` changes keys of params.yaml, `models.*.KEY` that of each model.

The table has the F1 of entities, where there are any, the accuracy of words and that of sentences on the test split,
each with its interval, the parameters, and the seconds of the train stage without its start.
"""

from __future__ import annotations

from benchmarks.preset_table import Table

TABLE = Table(
    name="taggers",
    presets=("tagger_hmm", "tagger_perceptron", "tagger_elman_crf", "tagger_birnn_crf", "tagger_minilm"),
    corpus="tagged",
    items="tagged sentences",
    metrics=(("entity_f1", "F1 of entities"), ("accuracy", "accuracy"), ("sentence_accuracy", "whole sentences")),
    further=("+corpus@corpora.entities=conll_files", "+corpus@corpora.sentences=conllu_files"),
)

if __name__ == "__main__":
    TABLE.main()
