"""What is hidden of a launch that is shown, and what is not."""

import pytest

from k31ctl.core.launch_secrets import stated_secrets, without_secrets

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
    ],
)
def test_a_key_is_hidden_wherever_a_launch_states_it(text: str) -> None:
    assert stated_secrets(text) == {KEY}
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
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert not stated_secrets(text)


def test_a_long_text_is_read_quickly() -> None:
    assert not stated_secrets("-" * 100_000 + "x" * 100_000 + " " * 100_000)
