"""What a run executes, by its kind (AnalysisRun.kind)."""

from collections.abc import Mapping

from explorer.models import AnalysisRun

from . import additions, pipeline, verification
from .execution import Work

KINDS: Mapping[str, Work] = {
    AnalysisRun.REPORTS: pipeline.report,
    AnalysisRun.MAINTENANCE: pipeline.maintain,
    AnalysisRun.IMPORT: additions.import_history,
    AnalysisRun.GENERATION: additions.generate_history,
    AnalysisRun.VERIFICATION: verification.verify,
}
