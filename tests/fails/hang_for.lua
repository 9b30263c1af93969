for i = 1, 1 << 62 do end
