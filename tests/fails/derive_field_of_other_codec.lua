return preset "turboquant_4bit_nc" {
  value = { rotation = "none" },
}
