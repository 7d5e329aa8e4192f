"""What ``vllm serve`` reads, by its own interpreter; ``flag_script.py`` runs it."""

import ast
import dataclasses
import importlib
import os
from pathlib import Path
from typing import Any

VLLM_OBJECTS = {
    "--compilation-config": "CompilationConfig",
    "--attention-config": "AttentionConfig",
    "--speculative-config": "SpeculativeConfig",
    "--kv-transfer-config": "KVTransferConfig",
    "--kernel-config": "KernelConfig",
    "--kv-events-config": "KVEventsConfig",
    "--structured-outputs-config": "StructuredOutputsConfig",
    "--eplb-config": "EPLBConfig",
    "--profiler-config": "ProfilerConfig",
    "--mamba-config": "MambaConfig",
    "--ec-transfer-config": "ECTransferConfig",
    "(cache)": "CacheConfig",
    "(parallel)": "ParallelConfig",
    "(scheduler)": "SchedulerConfig",
    "(load)": "LoadConfig",
}


def vllm(common: Any) -> dict[str, Any]:
    """Return what ``vllm serve`` reads."""
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    package = importlib.import_module("vllm")
    flexible = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    places = ("vllm.entrypoints.common.cli_args", "vllm.entrypoints.openai.cli_args")
    place = next(p for p in places if common.maybe(p, "make_arg_parser"))
    parser = common.maybe(place, "make_arg_parser")(flexible(prog="vllm serve"))
    objects = {}
    for flag, name in VLLM_OBJECTS.items():
        homes = ("", ".cache", ".kernel", ".mamba", ".kv_events", ".ec_transfer")
        kind = next((k for h in homes if (k := common.maybe(f"vllm.config{h}", name))), None)
        if kind is not None and dataclasses.is_dataclass(kind):
            objects[flag] = {"class": name, "fields": common.fields_of(kind)}
    registry = common.maybe("vllm.model_executor.models.registry", "ModelRegistry")
    architectures = registry.get_supported_archs() if registry else ()
    return {
        "version": package.__version__,
        "command": "vllm serve",
        "method": f"{place}.make_arg_parser",
        "flags": common.flags_of(parser),
        "runtime_choices": vllm_choices(common),
        "config_objects": objects,
        "environment_variables": vllm_variables(),
        "environment_names_in_source": common.quoted_names(package, "VLLM_|AITER_"),
        "kimi_architectures": sorted(a for a in architectures if "Kimi" in a),
    }


def vllm_choices(common: Any) -> dict[str, list[str]]:
    """Return the values that vLLM checks after its parser."""
    tables = (
        ("--reasoning-parser", "vllm.reasoning", "ReasoningParserManager"),
        ("--tool-call-parser", "vllm.tool_parsers", "ToolParserManager"),
        ("--attention-backend", "vllm.v1.attention.backends.registry", "AttentionBackendEnum"),
        (
            "--attention-config.mla_prefill_backend",
            "vllm.v1.attention.backends.mla.prefill.registry",
            "MLAPrefillBackendEnum",
        ),
        ("--load-format", "vllm.model_executor.model_loader", "_LOAD_FORMAT_TO_MODEL_LOADER"),
        ("--quantization", "vllm.model_executor.layers.quantization", "QUANTIZATION_METHODS"),
        ("--kv-cache-dtype", "vllm.config.cache", "KV_CACHE_DTYPES"),
        (
            "--kv-transfer-config.kv_connector",
            "vllm.distributed.kv_transfer.kv_connector.factory",
            "KVConnectorFactory",
        ),
    )
    found = {}
    for flag, module, name in tables:
        held = common.maybe(module, name)
        if held is not None:
            values = members_of(held)
            found[flag] = values if flag == "--kv-cache-dtype" else sorted(values)
    return found


def members_of(held: Any) -> list[str]:
    """Return the names that an enum, a registry or a list holds."""
    for of in ("list_registered", "__members__", "_registry"):
        inner = getattr(held, of, None)
        if inner is not None:
            return list(inner() if callable(inner) else inner)
    return list(held)


def vllm_variables() -> dict[str, Any]:
    """Return the variables of vLLM with the types and defaults that its source declares."""
    envs = importlib.import_module("vllm.envs")
    declared = {}
    for node in ast.walk(ast.parse(Path(str(envs.__file__)).read_text())):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    row = {"type": ast.unparse(line.annotation)}
                    if line.value is not None:
                        row["default"] = ast.unparse(line.value)
                    declared[line.target.id] = row
    return {name: declared.get(name, {}) for name in sorted(envs.environment_variables)}
