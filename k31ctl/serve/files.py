"""A file that was made: its name in the folder, its text, and whether it is to be run."""

import re
from typing import Any, Final

from k31ctl.serve.rollout import Choice, Rollout, Server
from k31ctl.values import frozen

_UNSAFE: Final = re.compile(r"[^\x20-\x7e]")


@frozen
class LaunchFile:
    """One file, its path relative to the folder of the launch."""

    path: str
    text: str
    executable: bool = False


def comment(text: str) -> str:
    """Text as one line that no character can end."""
    return _UNSAFE.sub("?", text)


def heading(rollout: Rollout) -> list[str]:
    """The comment that begins every file."""
    lines = [f"# {comment(rollout.title)}", "# README.md says how to start, check and stop it."]
    return lines + [f"# warning: {comment(warning)}" for warning in rollout.warnings]


def reason_of(choice: Choice) -> str:
    """Why a flag is there, on whose word, and how well known."""
    return comment(f"{choice.reason} ({choice.standing}: {choice.source})")


def reasons(server: Server) -> list[str]:
    """Comments that say why each flag and variable of a server is there."""
    lines = [f"# {server.name}: why each setting is there"]
    lines += [f"#   {choice.flag}: {reason_of(choice)}" for choice in server.choices]
    lines += [
        f"#   {v.name}: {comment(f'{v.reason} ({v.standing}: {v.source})')}"
        for v in server.variables
    ]
    return lines


def yaml_text(*documents: Any) -> str:
    """YAML that reads back as the same values; text is quoted by the dumper alone."""
    import yaml  # noqa: PLC0415  slow to import, and most answers write no YAML

    class Plain(yaml.SafeDumper):
        """Writes what occurs twice twice, as people do."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    return str(
        yaml.dump_all(
            documents,
            Dumper=Plain,
            sort_keys=False,
            default_flow_style=False,
            width=4096,
            allow_unicode=False,
        )
    )
