"""`lexmill init lm|classify|rate|label|tag|translate|answer`: write the configuration for a user's own files.

Reads   all of the files, as the prepare stage will; reports every error with file and line before writing anything
Writes  conf/corpus/<name>.yaml, conf/config.yaml (the old one kept as config.yaml.bak-N), params.yaml
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import storage
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.progress import bar, say
from lexmill.base.shown import value_text, visible
from lexmill.commands.init import hub, shares
from lexmill.commands.init import languages as of_files
from lexmill.commands.init.entry import corpus_entry, from_workspace, located, note_encodings, typed
from lexmill.commands.init.leftovers import set_aside
from lexmill.commands.init.reading import Kind, Reading, corpus_name
from lexmill.commands.init.starting_sizes import FORMS, Counts, configuration
from lexmill.commands.init.tagged import scheme_of
from lexmill.config import compose
from lexmill.config.unresolved import literal
from lexmill.params.corpora import Corpus

if TYPE_CHECKING:
    from lexmill.corpora.preparing.filters import Filter
    from lexmill.corpora.preparing.record import Record

MARK = "# Written by `lexmill init"
LEAST_RECORDS = 20
_SAY_NOTHING = ("data", "train", "training")  # names of files


def initialize(
    kind: Kind,
    files: Sequence[Path],
    reading: Reading,
    *,
    name: str | None = None,
    force: bool = False,
    languages: str | None = None,
    root: Path = Path(),
) -> None:
    """Check the files, then write conf/ and params.yaml for them.

    Args:
        kind: text, labelled, tagged, parallel or questions.
        files: paths, globs, or folders with a folder of texts for each label, relative to the present folder; or a
            data set of the hub (see `hub`).
        reading: how they are read, and the files of the owners' valid and test sets.
        name: the corpus's name; None: from the first file's name.
        force: replace the files of an earlier init.
        languages: `en`, or `en-de` for pairs; None: English, or from names such as train.en and train.de.
        root: the project's folder.

    Raises:
        UserErrors: all errors in the files; nothing was written.
        UserError: this is not the project's folder, or an earlier init would be replaced.
    """
    if not (root / "conf" / "config.yaml").is_file():
        raise UserError("there is no conf/config.yaml here; run this in the project's folder", root.resolve())
    name = corpus_name(name or _usual_name(files[0]))
    _refuse_replacing(name, root, force)
    with hub.taken(files, reading, root) as (source, local, local_reading):
        entry, counts, encodings = _read(kind, local, local_reading, languages, root)
    labels = reading.labels
    _enough(kind, labels, counts, ", ".join(map(str, files)))
    usual = typed(entry).splits
    splits = shares.working(usual, counts.groups, entry["unit"], counts.given)
    entry["splits"] = dataclasses.asdict(splits)
    if source is not None:
        entry["source"] = {**dataclasses.asdict(source), "splits": list(source.splits)}
    header = _header(FORMS[kind, labels].command, files, counts)
    config = f"{header}{_yaml(configuration(kind, name, counts, labels))}"
    _write(name, entry, config, root)
    aside = set_aside(root)
    most = ", ".join(f"{label} {n:,}" for label, n in counts.labels.most_common(8))
    say(f"{name}: {counts.records:,} records, {counts.characters:,} characters" + (f" ({most})" if most else ""))
    if counts.given:
        say("as given: " + ", ".join(f"{split} {n:,}" for split, n in counts.given.items()))
    for sentence in encodings:
        say(sentence)
    if kind == "tagged":
        say(f"scheme: {entry['reader']['scheme']}, which says how the tags mark entities; --scheme sets another")
    if entry["reader"].get("tokenized"):
        say("tokenized: true, as subwords end in @@, so blanks are taken to separate all tokens")
    say(of_files.origin(kind, entry["reader"], languages, entry["languages"]))
    if aside is not None:
        say(f"set aside: {aside[0]} files of models and corpora that are no more, in {aside[1]}")
    cut = [split for split in ("valid", "test") if split not in counts.given]
    if any(getattr(splits, split) != getattr(usual, split) for split in cut):
        shown = ", ".join(f"{getattr(splits, split):.0%} {split}" for split in cut)
        say(f"splits: {shown}; smaller shares would leave too few in one")
    say(f"written: conf/corpus/{name}.yaml, conf/config.yaml, params.yaml")
    say("next: lexmill check, then lexmill run; sizes and steps are in conf/config.yaml (then: lexmill compose)")


def _read(
    kind: Kind, files: Sequence[Path], reading: Reading, languages: str | None, root: Path
) -> tuple[dict[str, Any], Counts, list[str]]:
    """Return the entry of conf/corpus/ for files, what is in them, and sentences about their encodings."""
    reading = dataclasses.replace(
        reading,
        valid=[from_workspace(Path(file), root) for file in reading.valid],
        test=[from_workspace(Path(file), root) for file in reading.test],
    )
    entry = corpus_entry(kind, [from_workspace(file, root) for file in files], reading, languages, root)
    encodings = note_encodings(entry, root)
    plain = kind == "text" and entry["reader"]["format"] == "text"
    if plain and len(located(typed(entry), root)) >= LEAST_RECORDS:
        entry["reader"]["document"] = "file"
    if kind == "tagged" and "scheme" not in entry["reader"]:
        entry["reader"]["scheme"] = scheme_of(typed(entry), located(typed(entry), root))
    counts = count(typed(entry), root)
    if plain and len(counts.different) < LEAST_RECORDS:
        entry["reader"]["document"] = "line"  # too few paragraphs to split
        counts = count(typed(entry), root)
    if entry["reader"]["format"] == "parallel_text":
        entry["reader"]["tokenized"] = counts.tokenized
    return entry, counts, encodings


def _usual_name(file: Path) -> str:
    """Return a name from that of a file, or of its folder where the file is called train; or of a data set."""
    if str(file).startswith(hub.PREFIX):
        return hub.name_of(file)
    bare = file.name.partition(".")[0]
    folder = Path(os.path.abspath(file)).parent.name
    return folder if bare.lower() in _SAY_NOTHING and folder else bare


def _refuse_replacing(name: str, root: Path, force: bool) -> None:
    if force:
        return
    config = root / "conf" / "config.yaml"
    if config.read_text(encoding="utf-8").startswith(MARK):
        raise UserError("an earlier `lexmill init` wrote this; --force replaces it and keeps a copy", config)
    corpus = root / "conf" / "corpus" / f"{name}.yaml"
    if corpus.exists():
        raise UserError("this corpus exists; choose another --name, or --force to replace it", corpus)


def count(corpus: Corpus, root: Path) -> Counts:
    """Count what the files hold, read as in the prepare stage.

    Raises:
        UserErrors: all their errors, with file and line.
    """
    from lexmill.corpora.preparing import filters
    from lexmill.corpora.preparing.errors import Errors
    from lexmill.corpora.preparing.readers import read
    from lexmill.corpora.preparing.readers.labels import labels_in
    from lexmill.corpora.preparing.record import text_key
    from lexmill.corpora.preparing.small import linked
    from lexmill.corpora.preparing.source_files import SourceFiles
    from lexmill.tokenizers.tokenizer import GOES_ON

    files_of = located(corpus, root)
    counts = Counts()
    errors = Errors()
    removed = filters.active(corpus).values()
    with linked(files_of) as folder:
        files = SourceFiles(folder)
        with bar("read the files", files.bytes) as shown:
            for record in read(corpus, files, errors, shown.update):
                if record.split is not None:
                    counts.given[record.split] += 1
                    continue
                counts.records += 1
                if len(counts.different) < LEAST_RECORDS and all(side.strip() for side in record.sides):
                    counts.different.add(text_key(*record.sides))
                counts.characters += sum(map(len, record.sides))
                counts.bytes += sum(len(side.encode("utf-8", "replace")) for side in record.sides)
                counts.subwords += sum(f"{GOES_ON} " in side for side in record.sides)
                counts.labels.update(record.tags if record.label is None else labels_in(corpus, record.label))
                if len(counts.groups) < shares.MOST_GROUPS:
                    _note_group(record, corpus, removed, counts)
        errors.raise_all()
    return counts


def _note_group(record: Record, corpus: Corpus, removed: Iterable[Filter], counts: Counts) -> None:
    """Note the group of a record that the prepare stage will keep; it is normalised as there."""
    from lexmill.corpora.preparing.record import group_of, normalize_record

    normalize_record(record, corpus.kind, corpus.normalization)
    if not any(removes(record) for removes in removed):
        counts.groups.setdefault(group_of(record), set()).update([record.label] if record.label is not None else [])


def _enough(kind: Kind, labels: str, counts: Counts, files: str) -> None:
    errors: list[str] = []
    if counts.records < LEAST_RECORDS:
        errors.append(f"{counts.records} records; at least {LEAST_RECORDS} are needed, to have some in each split")
    elif len(counts.different) < LEAST_RECORDS:
        only = f"but only {len(counts.different)} different texts"
        errors.append(f"{counts.records:,} records, {only}; at least {LEAST_RECORDS} are needed")
    if kind in ("labelled", "tagged") and len(counts.labels) == 1:
        errors.append(f"all records have the label {value_text(next(iter(counts.labels)))}; two labels are needed")
    if kind == "labelled" and labels != "number" and len(counts.labels) > max(2, counts.records // 2):
        found = f"{len(counts.labels):,} different labels in {counts.records:,} records"
        errors.append(f"{found}; is --label the right column? (numbers: lexmill init rate)")
    if errors:
        raise UserErrors([f"{files}: {error}" for error in errors])


def _header(command: str, files: Sequence[Path], counts: Counts) -> str:
    # YAML refuses control characters, also in a comment.
    command = visible(f"{MARK} {command} {shlex.join(map(str, files))}`".splitlines()[0])
    then = "# Change sizes and steps here, then `lexmill compose` and `lexmill run`."
    return f"{command} from {counts.records:,} records.\n{then}\n"


def _yaml(value: Mapping[str, Any]) -> str:
    """Return YAML that Hydra reads as these values: it takes more for numbers than YAML does, as `1e5`."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create(dict(value)))


def _spelled_out(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry with the defaults of all its keys, so that each can be changed by its name."""
    whole = dataclasses.asdict(typed(dict(entry)))
    return {key: whole[key] for key in [*entry, *(key for key in whole if key not in entry)]}


def _write(name: str, entry: dict[str, Any], config: str, root: Path) -> None:
    """Write the three files and backups of the old ones; restore everything if anything fails."""
    conf = root / "conf"
    texts = {
        conf / "corpus" / f"{name}.yaml": f"# Your files.\n{_yaml(literal(_spelled_out(entry)))}",
        conf / "config.yaml": config,
    }
    before = {path: path.read_bytes() if path.exists() else None for path in texts}
    copies = {
        path: _backup(path) for path, data in before.items() if data is not None and data != texts[path].encode("utf-8")
    }
    try:
        for path, copy in copies.items():
            storage.write_bytes(copy, before[path] or b"")
        for path, text in texts.items():
            storage.write_text(path, text)
        compose.write_params((), root)
    except BaseException:  # also Ctrl-C
        for path, data in before.items():
            if data is None:
                path.unlink(missing_ok=True)
            elif path.read_bytes() != data:
                storage.write_bytes(path, data)
        for copy in copies.values():
            copy.unlink(missing_ok=True)
        raise
    for path, copy in copies.items():
        say(f"kept: the old {path.name} as {copy.relative_to(root)}")


def _backup(path: Path) -> Path:
    return next(copy for n in itertools.count(1) if not (copy := path.with_name(f"{path.name}.bak-{n}")).exists())
