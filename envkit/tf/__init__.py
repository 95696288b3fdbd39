"""TensorFlow's side of envkit: the only package that imports TensorFlow."""
