"""The models of the field's papers, made for 32 x 32 images."""

from undrift.models.cnn import CNN5
from undrift.models.resnet import ResNet, resnet

__all__ = ["CNN5", "ResNet", "resnet"]
