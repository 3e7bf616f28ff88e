"""Artifacts on disk: immutable numbered versions, their manifest, integrity and trust."""

from modelops.artifact.integrity import check_file, check_files, hash_files, read_manifest
from modelops.artifact.manifest import MANIFEST, FileEntry, Manifest
from modelops.artifact.opening import find_newest, locate, open_artifact, runs_code
from modelops.artifact.store import Artifact, Store, version_of, versions
from modelops.artifact.text_folder import TEXT_FORMAT, is_text
from modelops.artifact.trust_store import TrustedDigest, distrust, is_trusted, trust, trusted

__all__ = [
    "MANIFEST",
    "TEXT_FORMAT",
    "Artifact",
    "FileEntry",
    "Manifest",
    "Store",
    "TrustedDigest",
    "check_file",
    "check_files",
    "distrust",
    "find_newest",
    "hash_files",
    "is_text",
    "is_trusted",
    "locate",
    "open_artifact",
    "read_manifest",
    "runs_code",
    "trust",
    "trusted",
    "version_of",
    "versions",
]
