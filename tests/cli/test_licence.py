"""What is known of a model's terms: said with its source, and nothing is made up."""

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import k31ctl as package
from k31ctl.catalog import Kind, Store, default_folders
from k31ctl.catalog.licences import load_licence, repository_named
from k31ctl.core.licence import Standing, phrases_found
from tests.cli.test_schemas import schema

Run = Callable[..., subprocess.CompletedProcess[str]]
STORE = Store(default_folders())
LICENCES = {name: load_licence(STORE, name) for name in STORE.ids(Kind.LICENCES)}


def result(k31ctl: Run, *arguments: str) -> dict[str, Any]:
    done = k31ctl("licence", *arguments, "--json")
    document = json.loads(done.stdout)
    Draft202012Validator(schema("licence")).validate(document)
    assert document["warnings"] == [
        "These are notes of what was read, in our words, and no legal advice: the licence's own "
        "text counts."
    ]
    found: dict[str, Any] = document["result"]
    return found


def test_of_k31_pro_nothing_but_the_name_is_said(k31ctl: Run) -> None:
    done = k31ctl("licence", "kimi-k3.1-pro")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nknown: nothing but the name\n" in done.stdout
    assert "million" not in done.stdout
    assert result(k31ctl, "kimi-k3.1-pro")["licence"]["terms"] == []


def test_every_term_of_k3_has_its_source_and_how_close_it_was_read(k31ctl: Run) -> None:
    found = result(k31ctl, "moonshotai/Kimi-K3")
    terms = {term["id"]: term for term in found["licence"]["terms"]}
    assert (
        "20 million US dollars of revenue in any 12 months" in terms["model-as-a-service"]["says"]
    )
    assert terms["model-as-a-service"]["standing"] == Standing.QUOTED
    assert all(term["source"]["url"].startswith("https://") for term in terms.values())


@pytest.mark.parametrize(
    ("subject", "licence", "standing", "shown_name"),
    [
        ("kimi-k2.5", "kimi-k2-modified-mit", "quoted", "Kimi K2.5"),
        ("kimi-k2-instruct-0905", "kimi-k2-modified-mit", "text", "Kimi K2"),
        ("deepseek-v3.2", "mit", "quoted", ""),
        ("kimi-linear-48b", "mit", "reported", ""),
        ("inferact-k3-dspark", "kimi-k3-license", "tag", ""),
        ("radixark-k31-dflash2", "apache-2.0", "tag", ""),
    ],
)
def test_models_and_drafts_have_their_licence(
    k31ctl: Run, subject: str, licence: str, standing: str, shown_name: str
) -> None:
    found = result(k31ctl, subject)
    assert found["licence"]["id"] == licence
    assert (found["coverage"]["standing"], found["coverage"]["shown_name"]) == (
        standing,
        shown_name,
    )


def test_what_is_not_known_is_said_and_is_no_error(k31ctl: Run) -> None:
    done = k31ctl("licence", "radixark-k3-dspark")
    assert done.returncode == 0
    assert done.stdout.startswith("RadixArk/Kimi-K3-DSpark: nothing is known of its terms here.\n")
    assert result(k31ctl, "radixark-k3-dspark")["known"] is False


def test_an_unknown_name_is_refused(k31ctl: Run) -> None:
    done = k31ctl("licence", "kimi-k9")
    assert (done.returncode, done.stdout) == (3, "")


def test_every_model_is_covered_once_at_most_and_every_licence_says_what_it_does_not_know() -> None:
    repos = [entry.repo.casefold() for each in LICENCES.values() for entry in each.covers]
    assert len(repos) == len(set(repos))
    assert {repository_named(STORE, model).casefold() for model in STORE.ids(Kind.MODELS)} <= {
        *repos
    }
    assert all(each.unknown for each in LICENCES.values())
    assert all(term.phrase for each in LICENCES.values() for term in each.terms)


def test_the_words_of_every_apache_term_are_in_the_text_that_we_have() -> None:
    licence = LICENCES["apache-2.0"]
    text = (Path(package.__file__).parents[1] / "LICENSE").read_text()
    assert phrases_found(licence, text) == tuple(term.id for term in licence.terms)
    assert phrases_found(LICENCES["mit"], text) == ()


def test_a_folder_s_licence_file_is_held_against_the_known_words(
    k31ctl: Run, tmp_path: Path
) -> None:
    text = b"Permission ... to deal in\n the Software WITHOUT\nrestriction."
    (tmp_path / "LICENSE").write_bytes(text)
    found = result(k31ctl, str(tmp_path), "--model", "kimi-k3")
    assert found["files"] == [
        {
            "path": "LICENSE",
            "sha256": hashlib.sha256(text).hexdigest(),
            "is_as_recorded": None,
            "terms_found": ["grant"],
            "is_readable": True,
        }
    ]
    done = k31ctl("licence", str(tmp_path), "--model", "kimi-k3")
    assert "has the words of 1 of the 7 terms above; not of notice" in done.stdout


def test_a_folder_that_says_nothing_is_answered(k31ctl: Run, tmp_path: Path) -> None:
    done = k31ctl("licence", str(tmp_path))
    assert done.returncode == 0
    assert "no licence file\n  no record of the download\n" in done.stdout
