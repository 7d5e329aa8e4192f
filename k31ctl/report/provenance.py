"""Where weights came from and under which terms, as their record says it."""

from typing import Any

from k31ctl.fetch.authority import AuthorityKind
from k31ctl.fetch.manifest import Manifest


def provenance_lines(manifest: Manifest) -> list[str]:
    """Return the record in words: what, from where, proven by whom, accepted by whom."""
    what = f"{manifest.repo} at {manifest.commit[:12]} ({manifest.revision})"
    lines = [
        f"origin     {what}, fetched {manifest.fetched_at} by k31ctl {manifest.version}",
        f"licence    {_licence(manifest)}",
    ]
    proven = manifest.proven_against
    if proven is not None:
        whose = "publishes" if proven.kind is AuthorityKind.HUB else "has in its own record"
        reason = f"; no hub was asked ({proven.reason})" if proven.reason else ""
        lines.insert(1, f"proven by  what {proven.source} {whose}{reason}")
    return lines


def provenance(manifest: Manifest) -> dict[str, Any]:
    """Return the record without its list of files and its texts."""
    return {
        "repo": manifest.repo,
        "endpoint": manifest.endpoint,
        "revision": manifest.revision,
        "commit": manifest.commit,
        "fetched_at": manifest.fetched_at,
        "version": manifest.version,
        "proven_against": manifest.proven_against,
        "licence": manifest.licence,
        "licence_files": [
            {"path": text.path, "sha256": text.sha256, "has_text": text.text is not None}
            for text in manifest.licence_texts
        ],
        "accepted_by": manifest.accepted_by,
        "accepted_at": manifest.accepted_at,
        "sources": sorted({source for file in manifest.files for source in file.sources}),
    }


def _licence(manifest: Manifest) -> str:
    kept = ", ".join(text.path for text in manifest.licence_texts if text.text is not None)
    parts = [manifest.licence or "not named by the hub"]
    parts.append(f"text kept ({kept})" if kept else "no text kept")
    when = f" at {manifest.accepted_at}" if manifest.accepted_at else ""
    accepted = manifest.accepted_by
    parts.append(f"accepted by {accepted}{when}" if accepted else "nobody recorded as accepting it")
    return "; ".join(parts)
