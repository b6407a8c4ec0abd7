"""The explorer's own tables. Those of the broker are in broker_core."""

from .analysis import AnalysisResult, AnalysisRun
from .audit import AuditRecord
from .dead_letters import DeadLetterNote
from .demo import Demonstration, Fault, FaultKind
from .lessons import FollowerAnswer, LessonProgress, Load, Sandbox, Scenario
from .saved import MessageTemplate, SavedFilter
from .seeded import SeededNamespace
