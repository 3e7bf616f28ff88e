from __future__ import annotations

import json
import math
import re

import pytest
from pydantic import ValidationError

from modelops.artifact.manifest import Parity
from modelops.report.export import ExportReport, next_commands, to_html, to_json
from modelops.report.parity_picture import picture

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202egpj\x1b"


def with_parity(report: ExportReport, **update: object) -> Parity:
    return report.parity.model_copy(update=update)


def test_the_page_leads_with_the_verdict(passing: ExportReport) -> None:
    page = to_html(passing)
    assert "Right: equal to eager PyTorch at 9 points" in page
    assert page.index("Right: equal") < page.index("What was asked")
    assert "NOT RIGHT" not in page
    assert "FAIL" not in page


def test_every_point_and_number_is_on_the_page(passing: ExportReport) -> None:
    page = to_html(passing)
    assert page.count("✓ pass") == 9
    assert "<th>batch × sequence</th>" in page
    for sizes in ("1 × 1", "16 × 256"):
        assert f">{sizes}</td>" in page
    assert page.count("realistic, padded") == 4
    assert "2.1e-7" in page
    assert "1 to 64" in page
    assert "parity: 29% of it" in page
    assert passing.source.sha256 in page
    assert "modelops serve artifacts/minilm" in page


def test_a_failure_names_the_first_output_that_is_off_and_by_how_much(
    failing: ExportReport,
) -> None:
    page = to_html(failing)
    assert "NOT RIGHT: embedding is off by 1.52 (cosine 0.912) at batch 3, sequence 7" in page
    assert "Right: equal" not in page
    assert page.count("✗ FAIL") == 2
    assert "NaN where eager is finite" in page
    assert "Nothing was published." in page
    assert "modelops serve" not in page


def test_an_output_that_cannot_be_compared_is_said_to_be(failing: ExportReport) -> None:
    alone = with_parity(failing, points=failing.parity.points[2:3])
    headline = failing.model_copy(update={"parity": alone}).verdict.headline
    assert headline == (
        "NOT RIGHT: embedding cannot be compared with eager PyTorch at batch 5, sequence 31"
    )


def test_another_check_that_failed_is_the_headline(passing: ExportReport) -> None:
    failed = ("dim batch came out static: 3", "a path of the exporting machine in model.onnx")
    report = passing.model_copy(update={"passed": False, "failures": failed})
    assert report.verdict.headline == "NOT RIGHT: dim batch came out static: 3"
    assert failed[1] in to_html(report)


def test_nothing_compared_is_not_right(passing: ExportReport) -> None:
    report = passing.model_copy(update={"passed": False, "parity": with_parity(passing, points=())})
    page = to_html(report)
    assert "NOT RIGHT: nothing was compared with eager PyTorch" in page
    assert "the export ended before parity" in page


def test_a_report_cannot_claim_to_pass_what_failed(failing: ExportReport) -> None:
    with pytest.raises(ValidationError, match="cannot pass"):
        ExportReport.model_validate({**failing.model_dump(), "passed": True})


def test_names_in_the_page_are_shown_and_never_obeyed(passing: ExportReport) -> None:
    point = passing.parity.points[0]
    output = point.outputs[0].model_copy(
        update={"output": HOSTILE, "passed": False, "why": HOSTILE, "max_abs": 3.0}
    )
    bad = point.model_copy(update={"outputs": (output,), "dims": {HOSTILE: 2}, "label": HOSTILE})
    report = passing.model_copy(
        update={
            "name": HOSTILE,
            "format": HOSTILE,
            "source": passing.source.model_copy(
                update={"name": HOSTILE, "format": HOSTILE, "factory": HOSTILE}
            ),
            "parity": with_parity(passing, points=(bad,), checks=(HOSTILE,)),
            "notes": (HOSTILE,),
            "failures": (HOSTILE,),
            "chain": (passing.chain[0].model_copy(update={"name": HOSTILE}),),
            "sizes": {HOSTILE: 1},
            "toolchain": {HOSTILE: HOSTILE, "modelops": HOSTILE},
            "command": HOSTILE,
            "digest": HOSTILE,
            "text": passing.text and passing.text.model_copy(update={"labels": (HOSTILE,)}),
            "passed": False,
        }
    )
    page = to_html(report)
    assert "<script" not in page
    assert "<img" not in page
    assert page.count("&lt;script&gt;") >= 15
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert "script-src" not in page
    assert "default-src 'none'" in page


def test_a_hostile_name_does_not_become_a_command(passing: ExportReport) -> None:
    report = passing.model_copy(update={"name": "x; rm -rf ~", "location": None})
    assert next_commands(report)[0][0] == "modelops verify 'artifacts/x; rm -rf ~'"


def test_the_page_fetches_nothing(passing: ExportReport) -> None:
    page = to_html(passing)
    addresses = re.findall(r"(?:https?:)?//[\w.:]+", page)
    assert set(addresses) <= {"http://127.0.0.1:8080"}, "only the command to copy"
    assert not re.search(r"(?:src|href|url)\s*[=(]\s*[\"']?(?!data:,)[\w/.]", page)
    assert "@import" not in page


def test_json_holds_the_same_and_is_strict(failing: ExportReport) -> None:
    point = failing.parity.points[1]
    infinite = point.outputs[0].model_copy(update={"max_rel": math.inf})
    point = point.model_copy(update={"outputs": (infinite,)})
    report = failing.model_copy(update={"parity": with_parity(failing, points=(point,))})
    value = json.loads(to_json(report), parse_constant=pytest.fail)
    assert value["parity"]["points"][0]["outputs"][0]["max_rel"] is None
    assert value["schema_version"] == 1
    assert value["passed"] is False


def test_json_comes_back_as_the_same_report(passing: ExportReport) -> None:
    assert ExportReport.model_validate_json(to_json(passing)) == passing


def test_points_with_other_dims_are_named_in_full(passing: ExportReport) -> None:
    first, second = passing.parity.points[:2]
    other = second.model_copy(update={"dims": {"batch": 2}})
    report = passing.model_copy(update={"parity": with_parity(passing, points=(first, other))})
    page = to_html(report)
    assert ">batch 1, sequence 1</td>" in page
    assert ">batch 2</td>" in page


def test_several_outputs_share_their_point(passing: ExportReport) -> None:
    point = passing.parity.points[1]
    second = point.outputs[0].model_copy(update={"output": "hidden"})
    two = point.model_copy(update={"outputs": (*point.outputs, second)})
    page = to_html(passing.model_copy(update={"parity": with_parity(passing, points=(two,))}))
    assert page.count('rowspan="2"') == 3
    assert page.count(">2 × 7</td>") == 1


def test_fixed_sizes_and_no_time_still_make_a_page(passing: ExportReport) -> None:
    point = passing.parity.points[0].model_copy(update={"dims": {}})
    report = passing.model_copy(
        update={"parity": with_parity(passing, points=(point,)), "chain": (), "text": None}
    )
    page = to_html(report)
    assert "fixed sizes" in page
    assert report.parity_share is None


def test_the_picture_puts_errors_in_order_against_the_limit(passing: ExportReport) -> None:
    shown = picture(passing.parity)
    places = {row.output.max_rel: row.at for row in shown.rows}
    ordered = [places[error] for error in sorted(e for e in places if e is not None)]
    assert all(at is not None for at in ordered)
    assert ordered == sorted(ordered, key=lambda at: at or 0.0)
    assert places[0.0] == 0
    assert shown.limit == pytest.approx(2e-4)
    assert shown.limit_at is not None
    assert max(at or 0.0 for at in ordered) < shown.limit_at < 100


@pytest.mark.parametrize("error", [1e-30, 1e30, math.inf, math.nan, None, 0.0])
@pytest.mark.parametrize("tolerance", [0.0, 1e-4])
def test_the_picture_holds_any_error(
    passing: ExportReport, error: float | None, tolerance: float
) -> None:
    point = passing.parity.points[0]
    output = point.outputs[0].model_copy(update={"max_abs": error, "max_rel": error})
    rule = passing.parity.tolerance.model_copy(update={"atol": tolerance, "rtol": tolerance})
    point = point.model_copy(update={"outputs": (output,)})
    shown = picture(with_parity(passing, points=(point,), tolerance=rule))
    (row,) = shown.rows
    assert row.at is None or 0 <= row.at <= 100
    assert len(shown.ticks) <= 4


def test_an_integer_output_that_is_equal_stands_at_zero(passing: ExportReport) -> None:
    point = passing.parity.points[1]
    output = point.outputs[0].model_copy(update={"max_abs": 0.0, "max_rel": None, "cosine": None})
    point = point.model_copy(update={"outputs": (output,)})
    (row,) = picture(with_parity(passing, points=(point,))).rows
    assert row.at == 0
