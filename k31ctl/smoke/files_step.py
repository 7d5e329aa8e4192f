"""Step files: headers against the model, sizes and digests against the record, the tokenizer."""

from pathlib import Path
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.ladder import measure
from k31ctl.engine.tokenizer import VOCABULARY_FILE, load_tokenizer
from k31ctl.errors import InputError
from k31ctl.fetch.digest_check import check_files, expected_files
from k31ctl.fetch.findings import Finding
from k31ctl.fetch.partial_marker import part_of, read_marker
from k31ctl.fetch.proven import ProvenFiles
from k31ctl.fetch.structure import basis_of, check_structure
from k31ctl.fetch.watch import Watch
from k31ctl.smoke.session import Found, Session
from k31ctl.units import counted, show_bytes

_HASHED_UNASKED_BYTES: Final = 8 * 2**30
_SHOWN: Final = 4
_TEXTS: Final = ("Why is the sky blue?", "def f(x):\n    return x ** 2\n", "月之暗面 — naïve 🙂")


def files(session: Session) -> Found:
    """What lies in the folder is what its model and its record say."""
    folder, marker = session.folder, read_marker(session.folder)
    record, expected = expected_files(folder, None)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    hashes = session.task.hashes
    hashed = size <= _HASHED_UNASKED_BYTES if hashes is None else hashes
    findings: list[Finding] = []
    notes: list[str] = []
    if record:
        proven = ProvenFiles(folder, forget=False)
        checked = check_files(
            folder,
            expected,
            proven=proven,
            num_jobs=2,
            only_sizes=not hashed,
            watch=Watch(),
            record_name=Path(record).name,
        )
        findings += checked.findings
        how = f"{show_bytes(checked.hashed_bytes)} hashed, {checked.num_reused} proven before"
        notes.append(how if hashed else "sizes alone; --hashes reads the digests")
    else:
        notes.append("no record of digests here: a changed value may only show in later steps")
    structure = check_structure(
        folder, basis_of(session.store, folder, None, marker, has_record=bool(record))
    )
    findings += structure.findings
    faults = [
        f"{' '.join(filter(None, (each.file, each.tensor))) or folder.name}: {each.problem}"
        for each in findings
        if each.severity is Severity.ERROR
    ]
    if len(faults) > _SHOWN:
        faults = [*faults[:_SHOWN], f"and {len(faults) - _SHOWN} more"]
    if (part := part_of(marker)) is not None:
        notes.append(f"a part of {part}")
    faults += _tokenizer_faults(session, is_part=part is not None, notes=notes)
    num_tensors = len(session.checkpoint.files)
    return Found(
        detail=f"{counted(num_tensors, 'tensor')} as expected, {show_bytes(size)}",
        measures=(measure("tensors", num_tensors),),
        notes=(*notes, *structure.warnings),
        faults=tuple(faults),
    )


def _tokenizer_faults(session: Session, *, is_part: bool, notes: list[str]) -> list[str]:
    """Text must come back from its ids as it was."""
    if is_part and not (session.folder / VOCABULARY_FILE).exists():
        notes.append("no tokenizer in this part")
        return []
    try:
        tokenizer = load_tokenizer(session.folder, num_ids=session.config.vocab_size)
    except InputError as error:
        return [f"{Path(error.where).name} {error.what}"]
    for text in _TEXTS:
        ids = tokenizer.encode_text(text)
        back = b"".join(tokenizer.bytes_of(token) for token in ids).decode("utf-8", "replace")
        if back != text:
            return [f"the tokenizer makes {back!r} of {text!r}"]
    return []
