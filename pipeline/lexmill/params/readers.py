"""How the files of a corpus are read: a dataclass for each format or family of formats.

Each has `unfit(kind)`: the errors of reading a corpus of that kind (text, labelled, tagged, parallel ...) with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from lexmill.base.encodings import codec_name
from lexmill.base.shown import value_text
from lexmill.base.strict import spec
from lexmill.base.tag_schemes import Scheme

ROLES = {
    "text": ("text",),
    "labelled": ("text", "label"),
    "tagged": ("words", "tags"),
    "parallel": ("source", "target"),
    "conversation": ("messages", "prompt", "answer", "rejected"),
    "questions": ("question", "context", "answers", "start", "id"),
}
"""The columns of a record of each kind of corpus; of a conversation and a question some of them."""

Offsets = Literal["characters", "utf-16", "bytes", "search"]
Unmatched = Literal["error", "remove"]
MOST_COLUMNS = 1000


def outside(key: str, patterns: Sequence[str]) -> Iterator[str]:
    """Yield an error for each pattern that leads out of the folder of the source's files."""
    for index, pattern in enumerate(patterns):
        parts = pattern.replace("!", "/").split("/")
        if ".." in parts or PurePosixPath(pattern).is_absolute():
            place = f"{key}[{index}]" if len(patterns) > 1 else key
            yield f"{place}: {value_text(pattern)} leads out of the source's files; give a path inside them"


def _no_encoding(encoding: str, encodings: Mapping[str, str]) -> list[str]:
    """Return an error for each name that is no encoding, and each glob that leads out of the source's files."""
    found = []
    for key, name in (("encoding", encoding), *((f"encodings.{pattern}", name) for pattern, name in encodings.items())):
        try:
            codec_name(name)
        except ValueError as error:
            found.append(f"{key}: {error}")
    return [*found, *outside("encodings", tuple(encodings))]


_GIVES = {
    "labelled": "labelled texts",
    "tagged": "tagged sentences",
    "parallel": "pairs",
    "conversation": "conversations",
    "questions": "questions",
}


def _only(wanted: str, form: str, kind: str) -> list[str]:
    """Return an error for a corpus of another kind than a format gives."""
    return [] if kind == wanted else [f"format: '{form}' gives {_GIVES[wanted]}, but kind is '{kind}'"]


@dataclass(frozen=True)
class TextReader:
    """Plain text files."""

    format: Literal["text"]
    document: Literal["file", "paragraph", "line"] = spec("what one document is", "file")
    label_from: Literal["folder"] | None = spec("of a labelled corpus: the name of a file's folder is its label", None)
    encoding: str = spec("the files' character encoding", "utf-8")
    encodings: dict[str, str] = spec("that of some files: a glob of their names -> their encoding", factory=dict)

    def errors(self) -> list[str]:
        return _no_encoding(self.encoding, self.encodings)

    def unfit(self, kind: str) -> list[str]:
        if kind not in ("text", "labelled"):
            return [f"format: 'text' cannot give a {kind} corpus"]
        if kind == "labelled" and self.label_from is None:
            return ["label_from: texts of a labelled corpus need it; 'folder' takes the name of a file's folder"]
        if kind == "text" and self.label_from is not None:
            return [f"label_from: a text corpus has no labels, but this is '{self.label_from}'; leave it out"]
        return []


@dataclass(frozen=True)
class LabelForm:
    """What the label of a text is."""

    kind: Literal["name", "number", "set"] = spec(
        "one of several names; a number, as a price or stars; a set of names, with any number of them", "name"
    )
    separator: str = spec("of a set in one cell: what is between its names; lists of JSON and parquet have none", ";")
    no_labels: str = spec("of a set: what the files write where a text has no label", "none")

    def errors(self) -> list[str]:
        return [] if self.separator.strip() else ["separator: a mark between labels is expected, as ';'"]


@dataclass(frozen=True)
class LabelledLinesReader:
    """Plain text files with a label and a text in each line."""

    format: Literal["labelled_lines"]
    separator: str = spec("what is between label and text", " ")
    label_first: bool = spec("whether the label is before the first separator; otherwise it is after the last", True)
    label_form: LabelForm = spec("what a label is", factory=LabelForm)
    encoding: str = spec("the files' character encoding", "utf-8")
    encodings: dict[str, str] = spec("that of some files: a glob of their names -> their encoding", factory=dict)

    def errors(self) -> list[str]:
        found = _no_encoding(self.encoding, self.encodings)
        if not self.separator or "\n" in self.separator:
            found.append(f"separator: {value_text(self.separator)} cannot separate; give a text within one line")
        return found

    def unfit(self, kind: str) -> list[str]:
        return _only("labelled", self.format, kind)


@dataclass(frozen=True)
class MailReader:
    """Mails, one a file: subject and body."""

    format: Literal["mail"]
    labels: dict[str, str] = spec(
        "of a labelled corpus: a glob of a folder's name -> the label of its mails", factory=dict
    )

    def unfit(self, kind: str) -> list[str]:
        if kind not in ("text", "labelled"):
            return [f"format: 'mail' cannot give a {kind} corpus"]
        if kind == "labelled" and not self.labels:
            return ["labels: mails of a labelled corpus need it: a glob of a folder's name for each label"]
        if kind == "text" and self.labels:
            return ["labels: a text corpus has no labels; leave them out"]
        return []


@dataclass(frozen=True)
class RecordsReader:
    """Tables and records: a column or key for each role."""

    format: Literal["csv", "tsv", "jsonl", "json", "parquet"]
    text: str | None = spec("the column of the text (a number from 0 where there is no header)", None)
    label: str | None = spec("the column of the label", None)
    labels: tuple[str, ...] = spec("in its place: several columns, whose values joined by ' / ' are the label", ())
    label_form: LabelForm = spec("what a label is", factory=LabelForm)
    second: str | None = spec("of a labelled corpus: the column of a second text; the label is that of the pair", None)
    source: str | None = spec("the column of the source sentence", None)
    target: str | None = spec("the column of the target sentence", None)
    group: str | None = spec("the column whose value keeps records in one split; none: the text itself", None)
    header: bool = spec("whether the first line of a csv or tsv names the columns", True)
    quoting: bool = spec("whether quotes have a meaning in a csv or tsv", True)
    delimiter: str | None = spec("the character between the fields of a csv or tsv; none: a comma or a tab", None)
    encoding: str = spec("the files' character encoding", "utf-8")
    encodings: dict[str, str] = spec("that of some files: a glob of their names -> their encoding", factory=dict)
    positive_from: float | None = spec("label is a rating: at least this is 'positive'", None)
    negative_to: float | None = spec("label is a rating: at most this is 'negative'; between: left out", None)

    def errors(self) -> list[str]:
        found = [*_no_encoding(self.encoding, self.encodings), *self._no_delimiter()]
        if self.label_form.kind != "name" and (self.labels or self.positive_from is not None):
            other = "labels" if self.labels else "positive_from"
            found.append(f"label_form.kind: {other} makes names; leave out one of the two")
        if self.labels and self.positive_from is not None:
            found.append("labels: only a single label can be a rating; set label, or leave out positive_from")
        if len(set(self.labels)) < len(self.labels) or len(self.labels) == 1:
            found.append("labels: give two different columns or more; for a single one set label")
        if self.labels and self.label is not None:
            found.append("labels: they take the place of label; give one of the two")
        if self.format == "parquet" and self.encodings:
            found.append("encodings: parquet files are UTF-8; leave it out")
        if (self.positive_from is None) != (self.negative_to is None):
            return ["positive_from and negative_to belong together; give both or neither", *found]
        if self.positive_from is not None and self.negative_to is not None and self.positive_from <= self.negative_to:
            return [f"positive_from: {self.positive_from} must be above negative_to ({self.negative_to})", *found]
        return found

    def _no_delimiter(self) -> list[str]:
        if self.delimiter is None:
            return []
        if self.format not in ("csv", "tsv"):
            return [f"delimiter: {self.format} has none; leave it out"]
        if len(self.delimiter) != 1 or self.delimiter in "\r\n" or (self.quoting and self.delimiter == '"'):
            hint = '; a tab is "\\t" in double quotes' if self.delimiter == "\\t" else ""
            return [f"delimiter: {value_text(self.delimiter)} is not one character that can separate fields{hint}"]
        return []

    def unfit(self, kind: str) -> list[str]:
        given = {"label"} if self.labels else set()
        if kind == "conversation":
            return [f"format: conversations are read by format 'conversations', not '{self.format}'"]
        if kind == "questions":
            return [f"format: questions are read by format 'squad' or 'questions', not '{self.format}'"]
        if kind == "tagged":
            return [f"format: tagged sentences are read by 'conll', 'conllu' or 'tagged_records', not '{self.format}'"]
        given |= {role for role in ROLES[kind] if getattr(self, role) is not None}
        if self.second is not None and kind != "labelled":
            return [f"second: only a labelled corpus has second texts, but kind is '{kind}'"]
        return [f"{role}: a {kind} corpus needs the column of its {role}" for role in ROLES[kind] if role not in given]


@dataclass(frozen=True)
class ConversationsReader:
    """Records of conversations: messages with role and content, or a prompt and its answer."""

    format: Literal["conversations"]
    file_format: Literal["jsonl", "json", "parquet"] = spec("the format of the files", "jsonl")
    messages: str | None = spec("the key of a whole conversation, a list of messages with role and content", None)
    prompt: str | None = spec("in its place, with `answer`: the key of what is asked, a text or messages", None)
    answer: str | None = spec("the key of the answer: a text, or messages that end with it", None)
    rejected: str | None = spec("the key of a worse answer, for preferences", None)
    group: str | None = spec("the key whose value keeps records in one split; none: all before the answer", None)
    encoding: str = spec("the files' character encoding", "utf-8")
    encodings: dict[str, str] = spec("that of some files: a glob of their names -> their encoding", factory=dict)

    def errors(self) -> list[str]:
        found = _no_encoding(self.encoding, self.encodings)
        parts = [key for key in (self.prompt, self.answer) if key is not None]
        if self.messages is not None and parts:
            found.append("messages: prompt and answer take its place; give it, or those two")
        elif self.messages is None and len(parts) < 2:
            found.append("messages: missing: the key of a conversation's messages; or give prompt and answer")
        return found

    def unfit(self, kind: str) -> list[str]:
        return _only("conversation", self.format, kind)


@dataclass(frozen=True)
class ConllReader:
    """Files with a word and its tag in each line, and a blank line after each sentence."""

    format: Literal["conll"]
    word: int = spec("the column of the word, from 0; -1 is the last", 0, low=-MOST_COLUMNS, high=MOST_COLUMNS)
    tag: int = spec("the column of the tag", -1, low=-MOST_COLUMNS, high=MOST_COLUMNS)
    separator: Literal["whitespace", "tab"] = spec("what is between columns: spaces and tabs, or one tab", "whitespace")
    comment: str = spec("lines that begin with this are left out; empty: none", "")
    scheme: Scheme = spec("how the tags mark entities; none: they do not, as parts of speech", "none")
    group: Literal["sentence", "document"] = spec("what shares a split: document is from -DOCSTART- on", "sentence")
    encoding: str = spec("the files' character encoding", "utf-8")
    encodings: dict[str, str] = spec("that of some files: a glob of their names -> their encoding", factory=dict)

    def errors(self) -> list[str]:
        same = [f"tag: {self.tag} is the column of the word"] if self.word == self.tag else []
        return [*same, *_no_encoding(self.encoding, self.encodings)]

    def unfit(self, kind: str) -> list[str]:
        return _only("tagged", self.format, kind)


@dataclass(frozen=True)
class ConlluReader:
    """Files of Universal Dependencies; ranges of words (`3-4`) and empty nodes (`8.1`) are left out."""

    format: Literal["conllu"]
    tag: Literal["upos", "xpos", "misc"] = spec("the column of the tag", "upos")
    key: str | None = spec("of misc: the key whose value is the tag; a word without it has O", None)
    scheme: Scheme = spec("how the tags mark entities; none: they do not, as parts of speech", "none")
    group: Literal["sentence", "document"] = spec("what shares a split: document is from `# newdoc` on", "sentence")
    encoding: str = spec("the files' character encoding", "utf-8")
    encodings: dict[str, str] = spec("that of some files: a glob of their names -> their encoding", factory=dict)

    def errors(self) -> list[str]:
        found = _no_encoding(self.encoding, self.encodings)
        if (self.tag == "misc") != (self.key is not None):
            found.append("key: it belongs to tag: misc; give both or neither")
        return found

    def unfit(self, kind: str) -> list[str]:
        return _only("tagged", self.format, kind)


@dataclass(frozen=True)
class TaggedRecordsReader:
    """Records with a list of words and a list of their tags."""

    format: Literal["tagged_records"]
    file_format: Literal["jsonl", "json", "parquet"] = spec("the format of the files", "jsonl")
    words: str = spec("the key of the words", "words")
    tags: str = spec("the key of the tags", "tags")
    names: tuple[str, ...] = spec("where the tags are numbers: the name of each, from 0 on", ())
    scheme: Scheme = spec("how the tags mark entities; none: they do not, as parts of speech", "none")
    group: str | None = spec("the key whose value keeps records in one split; none: the text itself", None)
    encoding: str = spec("the files' character encoding", "utf-8")
    encodings: dict[str, str] = spec("that of some files: a glob of their names -> their encoding", factory=dict)

    def errors(self) -> list[str]:
        return _no_encoding(self.encoding, self.encodings)

    def unfit(self, kind: str) -> list[str]:
        return _only("tagged", self.format, kind)


@dataclass(frozen=True)
class SquadReader:
    """Files in the format of SQuAD 1.1 or 2.0: documents, their paragraphs, questions about each."""

    format: Literal["squad"]
    group: Literal["paragraph", "document"] = spec(
        "what is never split: a paragraph, or all those of a title", "paragraph"
    )
    offsets: Offsets = spec("what an answer's start counts; search: ignore it and find the answer", "characters")
    unmatched: Unmatched = spec("an answer that is not where its start says: an error, or removed", "error")
    encoding: str = spec("the files' character encoding", "utf-8")
    encodings: dict[str, str] = spec("that of some files: a glob of their names -> their encoding", factory=dict)

    def errors(self) -> list[str]:
        return _no_encoding(self.encoding, self.encodings)

    def unfit(self, kind: str) -> list[str]:
        return _only("questions", self.format, kind)


@dataclass(frozen=True)
class QuestionsReader:
    """Records of a question, its context and answers that are spans of the context."""

    format: Literal["questions"]
    file_format: Literal["jsonl", "json", "parquet"] = spec("the format of the files", "jsonl")
    question: str = spec("the key of the question", "question")
    context: str = spec("the key of the text that it is about", "context")
    answers: str = spec("the key of the answers: a text or several, or objects of text and start", "answers")
    start: str | None = spec("the key of the answers' starts, where `answers` are texts alone", None)
    id: str | None = spec("the key of a question's name, each once in a file; none: its line", None)
    group: str | None = spec("the key whose value keeps records in one split; none: the context", None)
    offsets: Offsets = spec("what an answer's start counts; search: ignore it and find the answer", "characters")
    unmatched: Unmatched = spec("an answer that is not where its start says: an error, or removed", "error")
    encoding: str = spec("the files' character encoding", "utf-8")
    encodings: dict[str, str] = spec("that of some files: a glob of their names -> their encoding", factory=dict)

    def errors(self) -> list[str]:
        found = _no_encoding(self.encoding, self.encodings)
        if self.start is not None and self.offsets == "search":
            found.append("start: with offsets 'search' it has no use; leave it out")
        return found

    def unfit(self, kind: str) -> list[str]:
        return _only("questions", self.format, kind)


@dataclass(frozen=True)
class ParallelTextReader:
    """Two plain text files of equal length, one sentence a line."""

    format: Literal["parallel_text"]
    source: tuple[str, ...] = spec("globs of the source-side files, sorted by number and name")
    target: tuple[str, ...] = spec("globs of the target-side files, in the same order")
    encoding: str = spec("the files' character encoding", "utf-8")
    encodings: dict[str, str] = spec("that of some files: a glob of their names -> their encoding", factory=dict)
    tokenized: bool = spec("blanks separate all tokens; a subword ends in @@ where its word goes on", False)

    def errors(self) -> list[str]:
        return [
            *outside("source", self.source),
            *outside("target", self.target),
            *_no_encoding(self.encoding, self.encodings),
        ]

    def unfit(self, kind: str) -> list[str]:
        return _only("parallel", self.format, kind)


@dataclass(frozen=True)
class TranslationTreeReader:
    """JSON trees of messages, one file a language and component, joined on (component, key path)."""

    format: Literal["translation_tree"]
    source: str = spec("pattern of the source file with {group} for the component, '.../{group}/en.json'")
    target: str = spec("pattern of the target file with {group}")

    def errors(self) -> list[str]:
        return [*outside("source", (self.source,)), *outside("target", (self.target,))]

    def unfit(self, kind: str) -> list[str]:
        return _only("parallel", self.format, kind)


@dataclass(frozen=True)
class UnitsReader:
    """Translation memories (TMX), localisation files (XLIFF 1.2 and 2.0), and gettext's catalogues (.po, .mo)."""

    format: Literal["tmx", "xliff", "gettext"]

    def unfit(self, kind: str) -> list[str]:
        return _only("parallel", self.format, kind)


RowsReader = RecordsReader | ConversationsReader | QuestionsReader | TaggedRecordsReader
ColumnsReader = ConllReader | ConlluReader
TaggedReader = ColumnsReader | TaggedRecordsReader
FormedReader = LabelledLinesReader | RecordsReader
EncodedReader = TextReader | LabelledLinesReader | RowsReader | SquadReader | ColumnsReader | ParallelTextReader
Reader = EncodedReader | MailReader | TranslationTreeReader | UnitsReader
