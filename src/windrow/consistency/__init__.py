"""Consistency: what was served, compared with what a backfill computes for the same requests."""

from windrow.consistency.report import Cause, Counted, Example, FeatureReport, Reason, Report
from windrow.consistency.stored import StoredReport, read_page, read_report, reports

__all__ = [
    "Cause",
    "Counted",
    "Example",
    "FeatureReport",
    "Reason",
    "Report",
    "StoredReport",
    "read_page",
    "read_report",
    "reports",
]
