"""From a summary to the report: one page that a data protection officer can read, print and sign."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from mooring import AuditResult
from mooring.report import charts
from mooring.report.frame import chart, items, page, table
from mooring.report.leakage import attacks_list, drawable, limitations_list
from mooring.report.numbers import score_from, scored, significant
from mooring.report.page import audit_sections, who_against_whom
from mooring.report.verdict import NOT_MEASURED

Summary = Mapping[str, Any]
_BY_PARTICIPANT = ("joint by participant", "alone")
_FURTHER = (
    "A fit with the others' anchor says that an upload was made with the same anchor. It says nothing of whether its rows "
    "and labels are true.",
    "Scores marked as simulated come from an audit's participants, dealt from rows like those of the study; they are not "
    "scores of the study itself.",
    "This page shows what one role's records say. What other roles know, and what was never measured, is not on it.",
)


def render_report(summary: Summary) -> str:
    """The page, as HTML; everything in the summary is taken for text that anybody may have written."""
    body = "".join(
        (
            _title(summary),
            _verdict(summary["verdict"]),
            _people(summary),
            _method(summary),
            _alignment(summary),
            _utility(summary),
            _own_rows(summary["own_rows"]),
            _leakage(summary),
            f"<h2>Limitations</h2>{limitations_list(_FURTHER)}",
            f"<h2>The attacks</h2>{attacks_list()}",
            _origin(summary),
            _signature(summary),
        )
    )
    made = ", ".join(f"{name} {version}" for name, version in summary["versions"].items())
    return page(summary["title"], body, footer=f"<p>Made on {escape(summary['made'])} with {escape(made)}.</p>")


def _title(summary: Summary) -> str:
    study = summary["study"]
    unknown = "not known: give the study's file with --study. Do not sign without it."
    pairs = [
        ("Study", escape(study["name"]) if study else unknown, ""),
        ("Fingerprint", escape(study["fingerprint"]) if study else unknown, ' class="fingerprint"' if study else ""),
        ("Seen by", escape(summary["role"]), ""),
        ("Made", escape(summary["made"]), ""),
    ]
    lines = "".join(f"<dt>{name}</dt><dd{kind}>{value}</dd>" for name, value, kind in pairs)
    return (
        f'<h1>{escape(summary["title"])}</h1><p class="sub">A report on one study, from the records of one role.</p>'
        f'<dl class="identity">{lines}</dl>'
    )


def _verdict(verdict: Mapping[str, Any]) -> str:
    tone = "good" if verdict["joining_shown_to_pay"] else "plain"
    attention = ""
    if verdict["attention"]:
        attention = f'<div class="warn"><b>Before you sign</b>{items(verdict["attention"], "")}</div>'
    return (
        f'<h2>In short</h2><div class="{tone}"><b>What joining gives</b>{_paragraphs(verdict["joining"])}</div>'
        f'<div class="warn"><b>What an upload gives away</b>{_paragraphs(verdict["leakage"])}</div>{attention}'
    )


def _paragraphs(sentences: Sequence[str]) -> str:
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def _empty(words: str) -> str:
    return f'<p class="empty">{escape(words)}</p>'


def _people(summary: Summary) -> str:
    parts = ["<h2>Who took part</h2>"]
    people = summary["participants"]
    if people:
        rows = [
            [
                escape(one["name"]),
                escape(one["state"]),
                "" if one["rows"] is None else f"{one['rows']:,}",
                "" if one["fit"] is None else f"{one['fit']:.3f}",
                {None: "", True: "yes", False: "no"}[one["delivered"]],
                f"<code class=digest>{escape(one['digest'][:12])}</code>" if one["digest"] else "",
            ]
            for one in people
        ]
        head = ["participant", "upload", "rows", "fit", "result delivered", "upload's digest"]
        parts.append(table(head, rows, numbers=(2, 3)))
    else:
        parts.append(_empty("Not known: give the study with --study, or the analyst's folder after 'mooring align'."))
    if summary["study"] and summary["study"]["analyst"]:
        parts.append(f"<p>Analyst: {escape(summary['study']['analyst'])}.</p>")
    if summary["set_aside"]:
        rows = [[escape(str(one.get("file", ""))), escape(str(one.get("reason", "")))] for one in summary["set_aside"]]
        parts += ["<h3>Set aside</h3>", table(["file", "reason"], rows)]
    return "".join(parts)


def _method(summary: Summary) -> str:
    study = summary["study"]
    if study is None:
        return "<h2>What was agreed</h2>" + _empty("Not known: give the study's file with --study.")
    digest = f"<p>SHA-256 of the study: <code>{escape(study['digest'])}</code></p>"
    return f"<h2>What was agreed</h2>{items(study['words'], '')}{digest}"


def _alignment(summary: Summary) -> str:
    found = summary["alignment"]
    if found is None:
        words = "Not known to this role: 'mooring align' (analyst) measures how well uploads fit each other."
        return "<h2>Alignment</h2>" + _empty(words)
    certificate = found.get("certificate")
    share = found.get("share_of_transition")
    rows = [
        ["why the solver stopped", escape(str(found.get("termination") or "not known"))],
        ["iterations", escape(significant(found.get("iterations")))],
        ["residual", escape(significant(found.get("residual")))],
        ["misfit of the anchors", escape(significant(found.get("misfit")))],
        [
            "is it the global optimum?",
            escape(certificate.get("words", "not known")) if certificate else "not shown: no certificate was computed",
        ],
        [
            "anchor noise",
            "not known"
            if share is None
            else f"v = {significant(found['anchor_noise_scale'])}, which is {share:.0%} of the transition scale "
            f"{significant(found['transition_scale'])}, near which alignment breaks down",
        ],
    ]
    if found.get("note"):
        rows.append(["note", escape(str(found["note"]))])
    parts = ["<h2>Alignment</h2>"]
    drawn = charts.fits(summary["participants"])
    if drawn is not None:
        parts.append(
            "<p>How well each upload's anchor fits the template of all others. A red bar does not fit: another anchor, "
            "another study or a mistake.</p>" + chart(drawn, "Fit of each participant's anchor with the others'")
        )
    return "".join(parts) + table(["measure", "value"], rows)


def _utility(summary: Summary) -> str:
    entries = summary["utility"]
    parts = ["<h2>What joining gives</h2>"]
    drawn = charts.scores(entries)
    if drawn is None:
        parts.append(
            _empty(
                "No score is known to this role. 'mooring train', 'mooring predict' and 'mooring audit' measure them."
            )
        )
    else:
        parts.append("<p>Lines through the ends of bars are 95 % intervals over test rows.</p>")
        parts.append(chart(drawn, "Scores of the joint model, of participants alone and of pooled raw rows"))
    apart = charts.by_participant(entries)
    if apart is not None:
        parts.append("<h3>Participant by participant</h3>" + chart(apart, "Scores by participant, joint and alone"))
    parts.append(_scores_table([one for one in entries if one["group"] not in _BY_PARTICIPANT]))
    each = [one for one in entries if one["group"] in _BY_PARTICIPANT]
    if each:
        parts.append(f"<details><summary>Every participant's scores</summary>{_scores_table(each)}</details>")
    return "".join(parts)


def _scores_table(entries: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for entry in entries:
        score = score_from(entry["score"])
        name = entry["name"] if entry["group"] in entry["name"] else f"{entry['group']}: {entry['name']}"
        rows.append(
            [
                escape(name),
                scored(score) if score is not None else "not known to this role" if not entry["score"] else "undefined",
                escape(score.metric) if score is not None else "",
                escape(entry["source"]),
            ]
        )
    return table(["score of", "value", "measured as", "where it comes from"], rows, numbers=(1,))


def _own_rows(own: Mapping[str, Any] | None) -> str:
    parts = ["<h2>This participant's rows</h2>"]
    if own is None:
        return parts[0] + _empty("Not known to this role: a participant's 'mooring check' and 'mooring share' say it.")
    if own["checked"]:
        counts = own["class_counts"] or {}
        classes = ", ".join(f"{name}: {count}" for name, count in counts.items())
        parts.append(f"<p>{own['rows'] if own['rows'] is not None else 'Unknown'} rows were checked before sharing")
        parts.append(f" ({escape(classes)}).</p>" if classes else ".</p>")
        if own["verdict"]:
            parts.append(f'<p class="plain">{escape(own["verdict"])}</p>')
        noise = own["noise"] or {}
        if noise.get("data_noise_scale"):
            parts.append(
                f"<p>Noise on these rows: σ = {significant(noise['data_noise_scale'])}, "
                f"{significant(noise.get('level'))} of their root mean square {significant(noise.get('rms'))}.</p>"
            )
        elif noise:
            parts.append("<p>No noise on these rows: the upload is an exact rigid image of them.</p>")
        parts += ["<h3>Hazards</h3>", items(own["hazards"] or (), "None of the known ones was found.")]
        if own["warnings"]:
            parts += ["<h3>Warnings</h3>", items(own["warnings"], "")]
    else:
        parts.append(_empty("Not checked before sharing, as far as the records say: 'mooring check' does it."))
    shared = own["shared"]
    if shared is None:
        parts.append("<p>Nothing was shared yet, as far as the records say.</p>")
    else:
        again = " The same bytes were issued again: no second draw of noise." if shared["reissued"] else ""
        digest = escape(str(shared["bundle_digest"] or "not recorded"))
        parts.append(f"<p>Shared: {shared['rows']} rows, in a bundle with SHA-256 <code>{digest}</code>.{again}</p>")
    return "".join(parts)


def _leakage(summary: Summary) -> str:
    if not summary["audits"]:
        return "<h2>What attacks recover</h2>" + _empty(NOT_MEASURED)
    parts = []
    for audit in summary["audits"]:
        result = AuditResult.from_json(json.dumps(audit["plain"]))
        best = None if audit["point"] is None else result.points[audit["point"]["index"]]
        title = "What attacks recover: " + audit["title"]
        parts.append(f"<h2>{escape(title)}</h2><p>{escape(who_against_whom(result.description))}</p>")
        if any(one.examples is not None for one in result.points):
            parts.append(
                '<p class="warn">Original rows stand below beside rebuilt ones: this page is as confidential as the data. '
                "<code>--no-examples</code> leaves them out.</p>"
            )
        figures, own = drawable(result).figures(), audit["source"] != "audit"  # a participant's hazards stand above
        parts.append(audit_sections(result, figures, best=best, level=3, hazards=not own or bool(result.warnings)))
    return "".join(parts)


def _origin(summary: Summary) -> str:
    rows = [[f"<code>{escape(one['command'])}</code>", escape(one["record"])] for one in summary["commands"]]
    made = table(["command", "record"], rows) if rows else _empty("No record of a command was found.")
    return f"<h2>The commands that made it</h2>{made}"


def _signature(summary: Summary) -> str:
    study = summary["study"]
    which = (
        f"study {escape(study['name'])}, fingerprint <code>{escape(study['fingerprint'])}</code>"
        if study
        else "a study whose fingerprint is not known"
    )
    lines = "".join(
        f"<div><span></span><label>{words}</label></div>" for words in ("Name", "Role", "Date", "Signature")
    )
    return (
        f'<section class="sign"><h2>Signature</h2><p>I have read this report on {which}, compared the fingerprint with the '
        "other participants, and understand that the figures of leakage are lower bounds and no guarantee.</p>"
        f'<div class="signature">{lines}</div></section>'
    )
