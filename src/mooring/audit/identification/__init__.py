"""Linkage in galleries; membership and record search by likelihood."""

from mooring.audit.identification.linkage import (
    BatchEvaluator,
    CachedEmbedding,
    LinkageTest,
    identity_galleries,
    make_galleries,
    make_linkage_test,
)
from mooring.audit.identification.membership import MembershipTest, audit_row_noise, make_membership_test

__all__ = [
    "BatchEvaluator",
    "CachedEmbedding",
    "LinkageTest",
    "MembershipTest",
    "audit_row_noise",
    "identity_galleries",
    "make_galleries",
    "make_linkage_test",
    "make_membership_test",
]
