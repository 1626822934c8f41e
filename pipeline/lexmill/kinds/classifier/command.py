"""`lexmill classify`, `label-next` and `label-errors`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lexmill.kinds.classifier import By
from lexmill.kinds.verbs import ModelName, Texts, Use, one_field

Features = Annotated[
    bool, typer.Option("--features", help="In place of texts: the n-grams that speak most for each label of a bag.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line, with the score of each label.")]


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def classify(
        texts: Texts = None, model: ModelName = None, as_json: AsJson = False, features: Features = False
    ) -> None:
        """Label texts with the champion of a classifier: the label, a tab, its probability.

        Where the classifier abstains, a tab and `abstained` follow.

        In a label, a tab, a line break and a backslash are written `\\t`, `\\n`, `\\r` and `\\\\`.
        """
        if features:
            from lexmill.kinds.classifier.predict import Predictor

            opened = use.model("classifier", model)
            assert isinstance(opened, Predictor)
            use.show(
                f"{one_field(one['label'])}\t{one_field(feature['n_gram'])}\t{feature['weight']:.4f}"
                for one in opened.telling()
                for feature in one["features"]
            )
            return
        given = list(use.texts(texts))
        found = use.model("classifier", model).predict(given)
        if as_json:
            use.show(json.dumps(one, ensure_ascii=False) for one in found)
        else:
            use.show(
                f"{one_field(one['label'])}\t{one['score']:.4f}" + ("\tabstained" if one.get("abstained") else "")
                for one in found
            )

    @app.command()
    def label_next(
        texts: Texts = None,
        model: ModelName = None,
        count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many texts.")] = 20,
        by: Annotated[By, typer.Option(help="How a prediction is unsure.")] = "margin",
    ) -> None:
        """Show the texts most worth labelling: how unsure a classifier is, a tab, its label, a tab, the text.

        From 0, sure, to 1. The most unsure comes first, equal texts once.
        """
        from lexmill.kinds.classifier.label_next import most_unsure

        given = list(dict.fromkeys(text for text in use.texts(texts) if text.strip()))
        answers = use.model("classifier", model).predict(given)
        use.show(
            f"{unsure:.4f}\t{one_field(answers[i]['label'])}\t{one_field(given[i])}"
            for i, unsure in most_unsure([one["scores"] for one in answers], by, count)
        )

    @app.command("label-errors")
    def list_label_errors(
        corpus: Annotated[str, typer.Argument(help="A labelled corpus of params.yaml.")],
        split: Annotated[str, typer.Option(help="train, valid, test or a further test set.")] = "train",
        count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many texts.")] = 50,
    ) -> None:
        """List labels that are probably wrong: the record, its label, the likely one, the margin, the text, by tabs.

        Five logistic regressions on TF-IDF, each fitted on four fifths of the split, judge the fifth they have not seen
        (confident learning).
        """
        from lexmill.kinds.classifier.label_errors import lines

        use.show(map("\t".join, lines(corpus, split, count)))
