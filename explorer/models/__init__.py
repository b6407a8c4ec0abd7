"""What the explorer keeps for itself; the broker's tables are broker_core's."""

from .analysis import AnalysisReason, AnalysisResult, AnalysisRun
from .audit import AuditRecord
from .demo import Demonstration
