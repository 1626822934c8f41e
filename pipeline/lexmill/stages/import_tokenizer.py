"""Take the tokenizer of a pretrained model, so that corpora can be encoded for it.

Reads   artifacts/checkpoints/<checkpoint>/
Writes  artifacts/tokenizers/<name>/{tokenizer.json,special_tokens.json,...}, metrics/import_tokenizer/<name>.json
Identity: params `imported_tokenizers.<name>`, the checkpoint, the code it imports.
Cost: seconds.
"""

from __future__ import annotations

from lexmill import params
from lexmill.base import layout, progress, storage
from lexmill.base.strict import pick
from lexmill.stages.entry import run_stage
from lexmill.tokenizers.imported import import_tokenizer


def main(name: str) -> None:
    choice = pick(params.load().imported_tokenizers, name, "imported_tokenizers")
    with storage.new_folder(layout.tokenizer(name)) as folder:
        tokenizer = import_tokenizer(layout.checkpoint(choice.checkpoint), folder)
    special = {role: getattr(tokenizer, f"{role}_id") for role in ("bos", "eos", "pad", "unk", "mask")}
    ids = {role: i for role, i in special.items() if i is not None}
    storage.write_json(layout.metrics("import_tokenizer", name), {"vocab_size": tokenizer.vocab_size, "special": ids})
    progress.say(f"import_tokenizer {name}: {tokenizer.vocab_size} entries, documents end with id {tokenizer.eos_id}")


if __name__ == "__main__":
    run_stage(main)
