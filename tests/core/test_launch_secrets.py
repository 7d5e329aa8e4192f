"""What is hidden of a launch that is shown, and what is not."""

import json
import shlex

import pytest

from k31ctl.core.launch_secrets import (
    document_without,
    secrets_of_words,
    stated_secrets,
    without_secrets,
)

KEY = "sk-canary-0123"


@pytest.mark.parametrize(
    "text",
    [
        f"vllm serve m --api-key {KEY} -tp 8",
        f"vllm serve m --api-key={KEY}",
        f"--admin-api-key '{KEY}'",
        f"command: ['--api-key', '{KEY}']",
        f"- --api-key\n- {KEY}\n",
        f"export HF_TOKEN={KEY}",
        f"docker run -e OPENAI_API_KEY={KEY} image",
        f"environment:\n  VLLM_API_KEY: {KEY}\n",
        f'- name: HF_TOKEN\n  value: "{KEY}"\n',
        f"Environment=AWS_SECRET_ACCESS_KEY={KEY}",
        f"--ssl-keyfile-password {KEY}",
        f"curl -H 'Authorization: Bearer {KEY}' localhost:8000/health",
        f"HF_TOKEN=${{HF_TOKEN:-{KEY}}}",
        f'["--api-key","{KEY}","-tp","8"]',
        f"bash -c 'vllm serve m --api-key {KEY}' && echo 'up'",
        f"http_proxy=http://me:{KEY}@proxy:3128",
    ],
)
def test_a_key_is_hidden_wherever_a_launch_states_it(text: str) -> None:
    assert KEY in stated_secrets(text)
    assert KEY not in without_secrets(text, stated_secrets(text))


@pytest.mark.parametrize(
    "text",
    [
        "--max-num-batched-tokens 16384000 --speculative-num-draft-tokens 12345678",
        "--tokenizer moonshotai/Kimi-K3 --tool-call-parser kimi_k3",
        "export HF_TOKEN=$HF_TOKEN_OF_THE_SITE",
        "HF_TOKEN: ${HF_TOKEN:?set it}",
        "valueFrom: {secretKeyRef: {name: hf-token, key: token}}",
        "--api-key EMPTY",
        "--api-key dummy",
        "HF_TOKEN: null",
        "HF_TOKEN= vllm serve m",
        "volumes:\n- secret:\n    secretName: keys\n",
        "token: {{ .Values.token }}",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert not stated_secrets(text)


def test_a_long_text_is_read_quickly() -> None:
    assert not stated_secrets("-" * 100_000 + "x" * 100_000 + " " * 100_000)


@pytest.mark.parametrize("key", ["a", "k3y", "Pa,ss$wordTAIL99", "it's", "two words, one key"])
@pytest.mark.parametrize("form", ["--api-key {}", "HF_TOKEN={}", "- name: HF_TOKEN\n  value: {}"])
def test_a_key_of_any_length_and_marks_is_hidden_whole(key: str, form: str) -> None:
    text = form.format(f'"{key}"')
    assert key in stated_secrets(text)
    assert without_secrets(text, stated_secrets(text)).rstrip('"').endswith("***")


def test_every_key_of_a_command_is_hidden_as_it_is_shown() -> None:
    words = ["vllm", "serve", "m", "--api-key", "a", "b c", "it's", "-tp", "8", "HF_TOKEN=Pa,ss$w"]
    found = secrets_of_words(words)
    assert found == {"a", "b c", "it's", "Pa,ss$w"}
    assert without_secrets(shlex.join(words), found) == (
        "vllm serve m --api-key *** '***' '***' -tp 8 'HF_TOKEN=***'"
    )


def test_a_short_key_is_hidden_as_a_word_alone() -> None:
    assert without_secrets("a table, a-b, =a", {"a"}) == "*** table, a-b, =***"


def test_a_document_stays_json_where_a_key_is_a_name_or_a_number_in_it() -> None:
    document = {"line": 8, "words": ["line", "8", 'say "x"'], "ok": True}
    shown = document_without(json.dumps(document, indent=2), {"line", "8", "true", 'say "x"'})
    assert json.loads(shown) == {"line": 8, "words": ["***", "***", "***"], "ok": True}
