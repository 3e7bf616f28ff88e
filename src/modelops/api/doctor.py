"""What this machine can run."""

from modelops.doctor import Diagnosis, Finding, examine

__all__ = ["Diagnosis", "Finding", "examine"]
