return preset {
  key = preset "turboquant_k8v4",
  value = affine { bits = 4 },
}
