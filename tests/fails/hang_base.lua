while true do pcall(preset, "turboquant_k8v4") end
