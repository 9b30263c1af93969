return preset {
  key = codebook { bits = 4 },
  value = "fp16",
}
