"""Whether a simulation can add its uploads securely, or must."""

from undrift.core.model.flat_model import bind
from undrift.engine.round.backend import Backend, InProcess
from undrift.engine.worker.job import Job
from undrift.secure.settings import Secure, why_not_secure


def check_secure(secure: Secure | bool | None, backend: Backend, job: Job, fixed: int | None) -> None:
    """Raise if uploads cannot be summed securely here, or if the method's noise needs it and they are not.

    Args:
        secure: the settings of secure sums; None has none.
        backend: where clients are trained.
        job: the method, the task and the settings of local training.
        fixed: how many clients take part in every round; None if their number varies.
    """
    if isinstance(secure, Secure) and (why := _why_not(secure, backend, job, fixed)):
        raise ValueError(f"secure: {why}")
    release = job.algorithm.release
    if release.least and (not isinstance(secure, Secure) or secure.least < release.least):
        raise ValueError(
            f"release={release!r}: without a secure sum of {release.least} clients or more the server sees the noise "
            f"of fewer; set secure = Secure(least={release.least}), or take private-sum, whose noise the server adds"
        )


def _why_not(secure: Secure, backend: Backend, job: Job, fixed: int | None) -> str:
    """Why uploads cannot be summed securely; "" if they can."""
    if not isinstance(backend, InProcess):
        name = type(backend).__name__
        return f"{name} adds uploads where they are trained; leave backend out, so that each client is a party"
    if fixed and fixed < secure.least:
        return f"a cohort of {fixed}, and a sum of fewer than {secure.least} is not unmasked"
    return why_not_secure(job.algorithm, job.local, bind(job.task.model()))
