for i in ipairs(codebook { bits = 4 }) do end
