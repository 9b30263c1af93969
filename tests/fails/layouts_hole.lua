return preset {
  key = codebook { bits = 4 },
  value = affine { bits = 4 },
  layouts = { [1] = "aos", [3] = "soa" },
}
