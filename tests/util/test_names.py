"""Unknown names: one wording, spelling habits do not matter."""

import pytest

from undrift.util.naming.names import normalize_name, suggest


@pytest.mark.quick
def test_the_nearest_name_is_suggested() -> None:
    assert suggest("Res-Net_2O", ["resnet20", "cnn"]) == "did you mean 'resnet20'?"
    assert suggest("bert", ["resnet20", "cnn"]) == "known are resnet20, cnn"
    assert suggest("bert", []) == "there are none"
    assert normalize_name("Fed-Avg_M") == "fedavgm"
