return preset "turboquant_k8v4" { key = { unbiased_norm = true } }
