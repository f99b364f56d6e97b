"""Fashion-MNIST on Flower."""
