import json

from k31ctl.report.disaggregation_document import disaggregation_document
from k31ctl.report.disaggregation_text import disaggregation_text
from tests.core.pools_under_load import load, one, pair


def test_the_section_keeps_to_eighty_columns_and_names_the_winner() -> None:
    workload = load(100_000)
    box = one(workload)
    found = pair(workload, prefill=box, decode=box, num_nodes=12)
    lines = disaggregation_text(found)
    assert max(map(len, lines)) <= 80
    assert "on as many GPUs" in " ".join(lines)


def test_the_document_is_json_and_repeats_the_result() -> None:
    workload = load()
    box = one(workload)
    found = pair(workload, prefill=box, decode=box, num_nodes=4)
    document = json.loads(json.dumps(disaggregation_document(found), allow_nan=False))
    assert document["output_tok_s"] == found.output_tok_s.value
    assert document["pools"]["num_gpus"] == 16
    assert document["winner"] == found.winner
    assert document["transfer"]["seconds_low"] <= document["transfer"]["seconds"]
