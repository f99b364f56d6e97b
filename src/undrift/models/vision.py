"""Networks from torchvision and timm (extra `vision`), which are imported when a network is built."""

from importlib import import_module
from types import ModuleType

from torch import nn

from undrift.models import layers


def densenet121(
    classes: int = 10, groups: int = 2, *, channels: int = 3, norm: str = "group", stem: str = "cifar"
) -> nn.Module:
    """DenseNet-121 from torchvision, with the norm and the stem of our ResNets.

    `norm="batch", stem="imagenet"` is torchvision's own. `norm="last"` is FedLAW's network as FedFFT describes it.

    Args:
        classes: how many outputs.
        groups: groups of every group norm.
        channels: how many channels the images have.
        norm: "group" or "batch"; or "last": group norm after the last dense block, batch norm in the dense layers and
            transitions, and neither norm nor ReLU after the stem's convolution.
        stem: "cifar", 3 x 3 without pooling, or "imagenet", 7 x 7 with stride 2 and max pooling.

    Note:
        FedFFT names FedLAW's implementation "with GN applied after the final dense block" and nothing else. FedLAW's
        code has batch norm everywhere and a bare stem, so we read: that code, with its last norm replaced. Its number
        of groups is not published.
    """
    if norm not in ("group", "batch", "last"):
        raise ValueError(f"densenet121: norm must be 'group', 'batch' or 'last', got {norm!r}")
    make = layers.norm("group" if norm == "group" else "batch", groups)
    last = layers.norm("batch" if norm == "batch" else "group", groups)
    conv, pool = layers.stem(stem, channels, 64)
    nn.init.kaiming_normal_(conv.weight)  # as in torchvision's other convolutions
    model: nn.Module = _library("torchvision.models", "densenet121").densenet121(num_classes=classes)
    features = model.get_submodule("features")
    features.conv0, features.pool0 = conv, pool
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, (last if name == "norm5" else make)(child.num_features))
    if norm == "last":
        features.norm0, features.relu0 = nn.Identity(), nn.Identity()
    return model


def vit_tiny(classes: int = 10, *, channels: int = 3, image: int = 32, patch: int = 4) -> nn.Module:
    """ViT-tiny from timm: 12 layers of width 192 with 3 heads, and layer norm.

    `image=224, patch=16` is timm's own.

    Args:
        classes: how many outputs.
        channels: how many channels the images have.
        image: height and width of the images.
        patch: height and width of a patch, a divisor of `image`.
    """
    if patch < 1 or image % patch:
        raise ValueError(f"vit_tiny: patch must divide the image's {image}, got {patch}")
    timm = _library("timm", "vit_tiny")
    model: nn.Module = timm.create_model(
        "vit_tiny_patch16_224", num_classes=classes, in_chans=channels, img_size=image, patch_size=patch
    )
    return model


def _library(name: str, model: str) -> ModuleType:
    """Import an optional library, or raise an error with the command that installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{model} needs {name.partition('.')[0]}: pip install 'undrift[vision]'") from error
    except RuntimeError as error:  # torchvision's compiled operators were built for another torch
        raise ImportError(
            f"{model}: torchvision was built for another torch than this one ({error}); "
            "install the build that fits, from the same index as torch: pip install 'undrift[vision]'"
        ) from error
