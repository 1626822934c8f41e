"""Where a `${...}` of conf/ or of an override refers to nothing, and how to write it as text.

OmegaConf's errors name the missing key at most, so this module searches conf/ for the file that sets the failing key.
Hydra puts a file's keys below its package, so the keys of the file are the end of the whole key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserError
from lexmill.base.shown import key_text, value_text
from lexmill.config.interpolations import GROWN, bounded

if TYPE_CHECKING:
    import yaml
    from omegaconf import DictConfig

_MOST_TEXT = 200
_MOST_WRONG = 20
_MARK = re.compile(r"(\\*)\$\{")


def literal(value: Any) -> Any:
    """Return plain data as conf/ must hold it, so that no `${` in its texts is a reference."""
    if isinstance(value, dict):
        return {key: literal(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [literal(inner) for inner in value]
    return _MARK.sub(lambda found: f"{found[1] * 2}\\${{", value) if isinstance(value, str) else value


def unresolved(
    error: BaseException, compose: Callable[[], DictConfig], overrides: Sequence[str], folder: Path
) -> Iterator[UserError]:
    """Yield an error for each text whose `${...}` cannot be resolved, with its file, line and key.

    Args:
        error: what the composition raised.
        compose: composes again, without resolving.
        overrides, folder: what was given, and conf/.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import (
        GrammarParseError,
        InterpolationResolutionError,
        OmegaConfBaseException,
        UnsupportedInterpolationType,
    )

    chain = list(_chain(error))
    grammar = [one for one in chain if isinstance(one, GrammarParseError)]
    if not grammar and not isinstance(error, InterpolationResolutionError | UnsupportedInterpolationType):
        return
    if GROWN in str(error) or any(isinstance(one, RecursionError) for one in chain):
        return  # to look at each would cost too much
    wrong: dict[str, str] = {}
    if grammar:  # it cannot be read at all, so nothing was composed
        wrong = {str(one.full_key): _reason(one) for one in grammar if getattr(one, "full_key", None)}
    else:
        with bounded():
            config = compose()
            for key, text in _texts(OmegaConf.to_container(config)):
                try:
                    OmegaConf.select(config, key)
                except OmegaConfBaseException as raised:
                    wrong[key] = f"{value_text(text, _MOST_TEXT)}: {_reason(raised)}"
                if len(wrong) == _MOST_WRONG:
                    break
    for key, reason in wrong.items():
        how = "`${...}` refers to another key; as text it is written `\\${...}`"
        given = next((one for one in overrides if "${" in one and _sets(one, key)), None)
        if given is not None:
            yield UserError(f"{key_text(given, _MOST_TEXT)}: {reason}; {how}")
            continue
        for path, place, line in _written(folder):
            if key == place or key.endswith(f".{place}"):
                yield UserError(f"{place}: {reason}; {how}", path, line)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(error: BaseException) -> str:
    return str(error).split("\n")[0]


def _sets(override: str, key: str) -> bool:
    target = override.lstrip("+~").partition("=")[0].rpartition("@")[2]
    return key == target or key.startswith((f"{target}.", f"{target}[", "["))


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text with a reference, by its key as `a.b[0]`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, f"{key}[{index}]")
    elif isinstance(value, str) and "${" in value and not value.startswith("${derived:"):
        yield key, value


def _written(folder: Path) -> Iterator[tuple[Path, str, int]]:
    """Yield file, key and line of each text with a reference in conf/."""
    import yaml

    for path in sorted(folder.rglob("*.yaml")):
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        for key, node in _nodes(root):
            if "${" in node.value:
                yield path.relative_to(folder.parent), key, node.start_mark.line + 1


def _nodes(node: yaml.Node | None, key: str = "") -> Iterator[tuple[str, yaml.ScalarNode]]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        for name, inner in node.value:
            yield from _nodes(inner, f"{key}.{name.value}" if key else str(name.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, inner in enumerate(node.value):
            yield from _nodes(inner, f"{key}[{index}]")
    elif isinstance(node, yaml.ScalarNode):
        yield key, node
