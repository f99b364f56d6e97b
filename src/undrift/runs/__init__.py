"""One run: described by one file, stored in a self-contained folder, resumed bit for bit."""

from undrift.runs.folder.backup import backup, restore
from undrift.runs.folder.verify import Verified, verify
from undrift.runs.loop.attacks import audit_inversion, audit_membership, infer_members, invert_uploads
from undrift.runs.loop.leaving import unlearn, withdraw
from undrift.runs.loop.privacy_audit import audit_run, audit_simulation
from undrift.runs.loop.replay import Replayed, replay
from undrift.runs.loop.run import resume, start
from undrift.runs.reading.export import export
from undrift.runs.reading.loaded_model import LoadedModel, load_model
from undrift.runs.reading.open_checkpoint import look
from undrift.runs.reading.saved_run import Outcome, SavedRun, load_run
from undrift.runs.settings.config import Config
from undrift.runs.settings.schema import ConfigError

__all__ = [
    "Config",
    "ConfigError",
    "LoadedModel",
    "Outcome",
    "Replayed",
    "SavedRun",
    "Verified",
    "audit_inversion",
    "audit_membership",
    "audit_run",
    "audit_simulation",
    "backup",
    "export",
    "infer_members",
    "invert_uploads",
    "load_model",
    "load_run",
    "look",
    "replay",
    "restore",
    "resume",
    "start",
    "unlearn",
    "verify",
    "withdraw",
]
