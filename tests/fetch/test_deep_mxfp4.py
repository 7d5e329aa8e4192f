"""What is told of real MXFP4: nothing where it is sound, and which single flips are seen."""

from pathlib import Path

import pytest

from k31ctl.fetch.deep import check_file
from k31ctl.fetch.findings import Finding, Severity
from tests.fetch.mxfp4_oracle import NAME, SCALES, distributions, encoded, write_encoded
from tests.fetch.tiny_checkpoint import flip, place_of

FILE = "model.safetensors"
WEIGHTS = distributions(64, 1024)
LEAST = (0.0, 2.0**-126, 1e-12)


def told(folder: Path) -> tuple[Finding, ...]:
    return check_file(folder, FILE).findings


@pytest.mark.parametrize("how", SCALES)
@pytest.mark.parametrize("name", WEIGHTS)
def test_sound_weights_of_any_distribution_raise_no_alarm(
    tmp_path: Path, name: str, how: str
) -> None:
    # A smallest magnitude of 1e-12 makes nothing of weights that are all smaller.
    for least in LEAST if name != "tiny" else LEAST[:2]:
        packed, scales = encoded(WEIGHTS[name], how, least=least)
        write_encoded(tmp_path / FILE, packed, scales)
        assert told(tmp_path) == (), least


def test_a_matrix_that_an_encoder_has_lost_is_an_error(tmp_path: Path) -> None:
    write_encoded(tmp_path / FILE, *encoded(WEIGHTS["tiny"], "floor", least=1e-12))
    (found,) = told(tmp_path)
    assert (found.severity, found.end is not None) == (Severity.ERROR, True)


# Exponents of usual weights lie near 120 = 0b1111000: a flip of bit 7 makes a scale huge, of bits 6
# and 5 tiny; of the others it stays within what weights may have.
SEEN = {7: Severity.ERROR, 6: Severity.WARNING, 5: Severity.WARNING}


@pytest.mark.parametrize("name", ["normal", "laplace", "student t, 2 degrees"])
@pytest.mark.parametrize("bit", range(8))
def test_of_flipped_bits_in_a_scale_the_three_highest_are_seen(
    tmp_path: Path, name: str, bit: int
) -> None:
    write_encoded(tmp_path / FILE, *encoded(WEIGHTS[name], "floor"))
    start, end = place_of(tmp_path / FILE, f"{NAME}.weight_scale")
    for at in range(start, end, 401):
        flip(tmp_path / FILE, at, bit)
        found = [(f.severity, f.start, f.end) for f in told(tmp_path)]
        assert found == ([(SEEN[bit], at, at + 1)] if bit in SEEN else [])
        flip(tmp_path / FILE, at, bit)


@pytest.mark.parametrize("content", [bytes(512), b"\xff" * 512])
def test_a_sector_of_scales_that_was_lost_is_an_error(tmp_path: Path, content: bytes) -> None:
    write_encoded(tmp_path / FILE, *encoded(WEIGHTS["normal"], "floor"))
    start, _ = place_of(tmp_path / FILE, f"{NAME}.weight_scale")
    raw = bytearray((tmp_path / FILE).read_bytes())
    raw[start + 512 : start + 1024] = content
    (tmp_path / FILE).write_bytes(raw)
    assert told(tmp_path)[0].severity is Severity.ERROR
