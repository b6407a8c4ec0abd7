"""What a run executes, by its kind (AnalysisRun.kind)."""

from collections.abc import Callable, Mapping

from explorer.models import AnalysisRun

from . import additions, pipeline, verification
from .execution import Jobs

KINDS: Mapping[str, Callable[[Jobs, AnalysisRun], None]] = {
    AnalysisRun.REPORTS: pipeline.report,
    AnalysisRun.MAINTENANCE: pipeline.maintain,
    AnalysisRun.IMPORT: additions.import_history,
    AnalysisRun.GENERATION: additions.generate_history,
    AnalysisRun.VERIFICATION: verification.verify,
}
