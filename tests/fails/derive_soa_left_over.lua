return preset "turboquant_k8v4" { value = float { format = "e4m3" } }
