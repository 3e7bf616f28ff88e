"""What this machine can run, and the one command that mends the rest."""

from modelops.doctor.examine import examine
from modelops.doctor.findings import Diagnosis, Finding

__all__ = ["Diagnosis", "Finding", "examine"]
