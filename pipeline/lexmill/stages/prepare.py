"""Turn a corpus's fetched files into clean, split records.

Reads   artifacts/sources/<corpus>/
Writes  artifacts/corpora/<corpus>/{train,valid,test}-NNNNN.jsonl and manifest.json,
        metrics/prepare/<corpus>.json, reports/samples/prepare-<corpus>.json
Identity: params `corpora.<corpus>`, the fetched files, the code it imports.
Cost: reads the files once and copies the kept records once more; memory O(largest document), whatever the size of the
corpus; scratch on disk: the corpus once, and about 200 bytes a record (8 bytes a permutation more with near
duplicates). Finding badly aligned pairs costs time and memory of its own (`preparing.alignment`). A large corpus is
read by the workers of the execution settings (`data`); its large files are read once more to be cut into chunks.
"""

from __future__ import annotations

from lexmill import params
from lexmill.base import layout, progress, storage
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.strict import pick
from lexmill.compute.workers.choosing import executor_for
from lexmill.corpora.preparing.prepare import prepare
from lexmill.corpora.preparing.source_files import SourceFiles
from lexmill.params.corpora import FileSource
from lexmill.stages.entry import run_stage


def main(name: str) -> None:
    corpus = pick(params.load().corpora, name, "corpora")
    try:
        with executor_for(f"prepare {name}", SourceFiles(layout.source(name)).bytes) as executor:
            report = prepare(name, corpus, layout.source(name), layout.corpus(name), executor)
    except UserError as error:
        copies = f"{layout.source(name)}/"
        if isinstance(corpus.source, FileSource) and copies in str(error):
            raise UserErrors(
                [str(error), f"{copies} holds copies: repair your own files, then `lexmill run`"]
            ) from None
        raise
    storage.write_json(layout.metrics("prepare", name), report.metrics)
    storage.write_json(layout.samples(f"prepare-{name}"), report.samples)
    progress.say(f"prepare {name}: {_summary(report.metrics)}")


def _summary(metrics: dict[str, object]) -> str:
    removed, records = metrics["removed"], metrics["records"]
    assert isinstance(removed, dict)
    assert isinstance(records, dict)
    reasons = [f"{filter_name} {count:,}" for filter_name, count in removed.items() if count]
    parts = [f"{split} {count:,}" for split, count in records.items()]
    without = f", without {', '.join(reasons)}" if reasons else ""
    return f"{metrics['raw']:,} records{without}: {metrics['used']:,} used ({', '.join(parts)})"


if __name__ == "__main__":
    run_stage(main)
