"""Every classifier of conf/model/ on the default reviews, or on another corpus: one table.

    python -m benchmarks.classifiers [PRESET...] [--corpus FILE] [--set KEY=VALUE ...] [--folder DIR]

Each preset is trained and evaluated by the ordinary stages in a scratch folder, and what has been is not repeated, so
the same command goes on after an interruption. `--corpus` names the params.yaml of another workspace, as
`lexmill init classify` writes it, whose corpus of labelled texts is then the one that all presets and their tokenizers
read. `--set` changes keys of params.yaml, `models.*.KEY` that of each model.

The table has the accuracy and the macro F1 on the test split with their intervals, the parameters, and the seconds of
the train stage without its start.
"""

from __future__ import annotations

from benchmarks.preset_table import Table

TABLE = Table(
    name="classifiers",
    presets=(
        "naive_bayes",
        "naive_bayes_bernoulli",
        "perceptron",
        "averaged_perceptron",
        "linear_svm",
        "logistic_regression",
        "text_mlp",
        "text_cnn",
        "pixel_cnn",
        "elman_classifier",
        "gru_classifier",
        "lstm_classifier",
        "birnn_classifier",
        "llama_classifier",
        "reservoir_probe",
        "linformer_tiny",
        "modern_tiny_reviews",
        "decoder_reviews",
        "minilm_neighbours",
        "minilm_probe",
        "minilm",
    ),
    corpus="labelled",
    items="labelled texts",
    metrics=(("accuracy", "accuracy"), ("macro_f1", "macro F1")),
)

if __name__ == "__main__":
    TABLE.main()
