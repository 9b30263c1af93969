return preset "../specs/turboquant_k8v4.lua" {}
