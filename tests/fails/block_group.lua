return preset {
  key = block_float { rule = "nvfp4", group = 64 },
  value = affine { bits = 4 },
}
