"""A roll call: every statement of sections 2 to 4 has tests that carry its label, and every test here carries one."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

RESULTS = """
section  label                                    what it is
2        prop:cgdp_collusion                      secret-state vulnerability of C-GDP
2        prop:exact_alignment_AAIGDP              exact alignment of AA-I-GDP
3        prop:aaigdp_collusion                    vulnerability of AA-I-GDP
3        prop:aaigdp_dp_aligned_representation    aligned representation under private-data noise
3        cor:aa_cgdp_equivalence                  collaboration-output equivalence
4        prop:gopp_global_nonidentifiability      global rigid-motion invariance
4        lem:gopp_center_template                 centring the template
4        prop:gopp_max_trace_reduction            reduction to max-trace form
4        prop:paigdp_translation_error            residual translation
4        thm:paigdp_adapted_gpm                   guarantee of the power method
"""

FACTS = """
section  label                                    what it is
2        def:CGDP_AN                              inversion leaves the noise
2        def:Independent_GDP                      own transforms keep geometry and share no key
4        eq:paigdp_centered_orthonormal_anchor    the anchor
4        def:pa_i_gdp                             anchor noise leaves Y_i rigid
4        eq:paigdp_gpm_update                     one power-method iteration
4        eq:paigdp_noiseless_common_rotation      no noise, one rotation
4        eq:paigdp_noiseless_common_output        no noise, one output
4        eq:paigdp_noisy_anchor_mean              mean of a noisy anchor upload
4        eq:paigdp_noisy_composed_map             what noise does to an aligned row
4        eq:paigdp_exact_translation_requirement  perfect rotations are not enough
4        eq:paigdp_rotation_error                 the rotational error
4        eq:paigdp_ling_empirical_scale           the transition scale
4        eq:pdp_collusion_centered_noisy_relation the noisy known-anchor pair
4        par:mp_attack                            Moore–Penrose estimator
4        par:op_attack                            orthogonal Procrustes estimator
4        par:am_attack                            alignment-map calibration
"""

FILES = {
    "2": ("test_section_2_preliminaries.py",),
    "3": ("test_section_3_tension.py",),
    "4": ("test_section_4_noisy_anchor.py", "test_section_4_attacks.py"),
}


def _rows(table):
    return [tuple(line.split(maxsplit=2)[:2]) for line in table.strip().splitlines()[1:]]


@cache
def _tests(section):
    """The test functions of a section's files: name and docstring."""
    trees = [ast.parse((Path(__file__).parent / name).read_text(encoding="utf-8")) for name in FILES[section]]
    nodes = [node for tree in trees for node in tree.body]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    assert len({function.name for function in functions}) == len(functions)
    return {function.name: ast.get_docstring(function) or "" for function in functions}


def _carries(name, label):
    stem = "test_" + label.replace(":", "_").lower()
    return name == stem or name.startswith(f"{stem}_")


def test_all_ten_results_are_listed():
    kinds = Counter(label.split(":")[0] for _, label in _rows(RESULTS))
    assert kinds == {"prop": 7, "lem": 1, "cor": 1, "thm": 1}
    labels = [label for _, label in _rows(RESULTS) + _rows(FACTS)]
    assert len(labels) == len(set(labels))


def test_every_label_has_a_test_that_names_it():
    missing = [
        label
        for section, label in _rows(RESULTS) + _rows(FACTS)
        if not any(_carries(name, label) and label in text for name, text in _tests(section).items())
    ]
    assert missing == []


def test_every_test_carries_a_label_and_says_so():
    nameless = [
        name
        for section in FILES
        for name, text in _tests(section).items()
        if not any(
            _carries(name, label) and text.startswith(f"{label}: ")
            for where, label in _rows(RESULTS) + _rows(FACTS)
            if where == section
        )
    ]
    assert nameless == []


def test_the_page_that_maps_the_paper_names_files_and_tests_that_exist() -> None:
    root = Path(__file__).parents[2]
    rows = re.findall(r"^\| .+? \| `(\S+)` \| (`tests/.+`) \|$", (root / "docs/theory.md").read_text(), re.M)
    named = [match for _, cell in rows for match in re.findall(r"`([^`:]+)(?:::(\w+))?`", cell)]
    assert len(named) >= 30
    for module, _ in rows:
        assert (root / module).exists(), module
    for path, test in named:
        assert f"def {test}(" in (root / path).read_text() if test else (root / path).is_file(), (path, test)
